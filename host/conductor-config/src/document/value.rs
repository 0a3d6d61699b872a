//! Typed access to values of the tree; a wrong type is reported.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::source::Span;
use crate::document::suggest;
use crate::document::unit::{self, QuantityFault};

/// A string and its position.
#[derive(Debug, Clone)]
pub(crate) struct Text<'t> {
    pub(crate) text: &'t str,
    pub(crate) span: Span,
}

/// The value of a key.
#[derive(Debug, Clone)]
pub(crate) struct Item<'t> {
    pub(crate) report: &'t Report,
    /// The key, for messages.
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: &'t DeValue<'t>,
    pub(crate) span: Span,
    /// A member of the key's list.
    pub(crate) is_element: bool,
}

/// Parser and error texts of a quantity.
struct Quantity<T> {
    /// Name with its article.
    what: &'static str,
    units: &'static str,
    /// Returns the likely meaning of a number without a unit.
    guess: fn(&str) -> String,
    parse: fn(&str) -> Result<T, QuantityFault>,
}

const TIME: Quantity<Duration> = Quantity {
    what: "a time",
    units: "`us`, `ms`, `s`, `m` or `h`",
    guess: |number| format!("{number}s"),
    parse: unit::parse_time,
};

const SIZE: Quantity<u64> = Quantity {
    what: "a size",
    units: "`B`, `KiB`, `MiB` or `GiB`",
    // A large number probably means bytes, a small one megabytes.
    guess: |number| match number.parse() {
        Ok(bytes) if bytes >= 1 << 10 => unit::show_size(bytes),
        _ => format!("{number}MiB"),
    },
    parse: unit::parse_size,
};

impl<'t> Item<'t> {
    pub(crate) fn text(&self) -> Option<Text<'t>> {
        match self.value {
            DeValue::String(text) => Some(Text {
                text,
                span: self.span.clone(),
            }),
            _ => self.wrong_type("a string"),
        }
    }

    /// Reads a list of strings.
    pub(crate) fn texts(&self) -> Option<Vec<Text<'t>>> {
        match self.value {
            DeValue::Array(items) => Some(
                items
                    .iter()
                    .filter_map(|item| self.element(item.get_ref(), item.span()).text())
                    .collect(),
            ),
            _ => self.wrong_type("a list of strings"),
        }
    }

    /// Returns the items of a list.
    pub(crate) fn elements(&self, expected: &str) -> Option<Vec<Self>> {
        match self.value {
            DeValue::Array(items) => {
                let items = items.iter();
                Some(
                    items
                        .map(|item| self.element(item.get_ref(), item.span()))
                        .collect(),
                )
            }
            _ => self.wrong_type(expected),
        }
    }

    /// Reads a list of strings, or one string as a list of one.
    pub(crate) fn text_or_texts(&self) -> Option<Vec<Text<'t>>> {
        match self.value {
            DeValue::String(_) => self.text().map(|text| vec![text]),
            DeValue::Array(_) => self.texts(),
            _ => self.wrong_type("a string or a list of strings"),
        }
    }

    /// Reads one of `choices`.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some(&(_, choice)) = choices.iter().find(|&&(name, _)| name == text.text) {
            return Some(choice);
        }
        let names = choices.iter().map(|&(name, _)| name);
        self.report.push(
            Problem::new(
                Code::InvalidValue,
                &text.span,
                format!("`{}` is not a value of `{}`", text.text, self.key),
            )
            .maybe_help(suggest::help(text.text, names)),
        );
        None
    }

    /// Reads a whole number within `range`.
    pub(crate) fn count(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(integer) = self.value else {
            return self.wrong_type("a whole number");
        };
        let count = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        match count.and_then(|count| u64::try_from(count).ok()) {
            Some(count) if range.contains(&count) => Some(count),
            _ => self.out_of_range(
                integer.as_str(),
                &range.start().to_string(),
                &range.end().to_string(),
            ),
        }
    }

    /// Reads a finite number above 0 and at most `most`.
    pub(crate) fn positive(&self, most: f64) -> Option<f64> {
        let (text, number) = self.number_as_written()?;
        let number = number.filter(|&number| number > 0.0 && number <= most);
        if number.is_none() {
            self.report.push(Problem::new(
                Code::OutOfRange,
                &self.span,
                format!("`{}` must be above 0 and at most {most}, not {text}", self.key),
            ));
        }
        number
    }

    /// Reads a finite number from 0 to `most`.
    pub(crate) fn not_negative(&self, most: f64) -> Option<f64> {
        let (text, number) = self.number_as_written()?;
        let number = number.filter(|number| (0.0..=most).contains(number));
        if number.is_none() {
            self.report.push(Problem::new(
                Code::OutOfRange,
                &self.span,
                format!("`{}` must be between 0 and {most}, not {text}", self.key),
            ));
        }
        number
    }

    /// Reads a finite number from `-most` to `most`.
    pub(crate) fn number(&self, most: f64) -> Option<f64> {
        let (text, number) = self.number_as_written()?;
        let is_within = |number: &f64| number.is_finite() && number.abs() <= most;
        let number = number.filter(is_within);
        if number.is_none() {
            let message = if most < f64::MAX {
                format!("`{}` must be between -{most} and {most}, not {text}", self.key)
            } else {
                format!("`{}` must be a finite number, not {text}", self.key)
            };
            self.report
                .push(Problem::new(Code::OutOfRange, &self.span, message));
        }
        number
    }

    /// Reads a number with its text; `None` if it is malformed.
    fn number_as_written(&self) -> Option<(&'t str, Option<f64>)> {
        match self.value {
            DeValue::Integer(integer) => {
                let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
                Some((integer.as_str(), number.map(|number| number as f64)))
            }
            DeValue::Float(float) => Some((float.as_str(), float.as_str().parse().ok())),
            _ => self.wrong_type("a number"),
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.wrong_type("true or false"))
    }

    /// Reads a time within `range`.
    pub(crate) fn duration(&self, range: &RangeInclusive<Duration>) -> Option<Duration> {
        let time = self.quantity(&TIME)?;
        if range.contains(&time) {
            return Some(time);
        }
        self.out_of_range(
            &unit::show_time(time),
            &unit::show_time(*range.start()),
            &unit::show_time(*range.end()),
        )
    }

    /// Reads a size in bytes within `range`.
    pub(crate) fn size(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let bytes = self.quantity(&SIZE)?;
        if range.contains(&bytes) {
            return Some(bytes);
        }
        self.out_of_range(
            &unit::show_size(bytes),
            &unit::show_size(*range.start()),
            &unit::show_size(*range.end()),
        )
    }

    /// Reports a wrong type; `expected` includes its article.
    pub(crate) fn wrong_type<T>(&self, expected: &str) -> Option<T> {
        self.wrong_type_but(expected, None)
    }

    /// Reports a wrong type with a fix.
    pub(crate) fn wrong_type_but<T>(&self, expected: &str, help: Option<String>) -> Option<T> {
        let whose = if self.is_element { "an item of " } else { "" };
        let article = match self.value.type_str() {
            found @ ("integer" | "array") => format!("an {found}"),
            found => format!("a {found}"),
        };
        self.report.push(
            Problem::new(
                Code::WrongType,
                &self.span,
                format!("{whose}`{}` must be {expected}, not {article}", self.key),
            )
            .label(format!("expected {expected}"))
            .maybe_help(help),
        );
        None
    }

    /// Returns a member of this array, under the same key.
    pub(crate) fn element(&self, value: &'t DeValue<'t>, span: Span) -> Self {
        Self {
            report: self.report,
            key: self.key.clone(),
            key_span: self.key_span.clone(),
            value,
            span,
            is_element: true,
        }
    }

    fn quantity<T>(&self, kind: &Quantity<T>) -> Option<T> {
        let text = match self.value {
            DeValue::String(text) => text,
            DeValue::Integer(number) => return self.no_unit(number.as_str(), kind),
            DeValue::Float(number) => return self.no_unit(number.as_str(), kind),
            _ => return self.wrong_type(&format!("{} in quotes, with its unit", kind.what)),
        };
        let why = match (kind.parse)(text) {
            Ok(quantity) => return Some(quantity),
            Err(QuantityFault::NoUnit) => return self.no_unit(text.trim(), kind),
            Err(QuantityFault::UnknownUnit) => "its unit is unknown",
            Err(QuantityFault::NoNumber) => "it must begin with a number",
            Err(QuantityFault::TooLarge) => "the number is too large",
        };
        self.report.push(
            Problem::new(
                Code::InvalidValue,
                &self.span,
                format!("`{text}` is not {}: {why}", kind.what),
            )
            .help(format!(
                "write a number and {}, for example \"{}\"",
                kind.units,
                (kind.guess)("30")
            )),
        );
        None
    }

    fn no_unit<T>(&self, number: &str, kind: &Quantity<T>) -> Option<T> {
        self.report.push(
            Problem::new(
                Code::MissingUnit,
                &self.span,
                format!("`{}` has no unit", self.key),
            )
            .help(format!(
                "{} is written with its unit ({}), for example \"{}\"",
                kind.what,
                kind.units,
                (kind.guess)(number)
            )),
        );
        None
    }

    fn out_of_range<T>(&self, found: &str, least: &str, most: &str) -> Option<T> {
        self.report.push(Problem::new(
            Code::OutOfRange,
            &self.span,
            format!("`{}` must be between {least} and {most}, not {found}", self.key),
        ));
        None
    }
}
