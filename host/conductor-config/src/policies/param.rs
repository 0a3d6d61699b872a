//! Policy parameters: `params` as JSON text.

use std::fmt::Write;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Item;
use crate::policies::model::ParamPlace;

/// Longest JSON text of parameters.
const MOST_BYTES: usize = 64 << 10;
/// No parameters.
const NONE: &str = "{}";

/// Returns JSON without whitespace and with sorted keys, so that equal parameters are equal texts. Parameters without
/// a JSON form are reported and left out.
pub(crate) fn json(params: &Item<'_>) -> String {
    let DeValue::Table(table) = params.value else {
        // Reports the wrong type.
        let _ = Section::of(params, String::new());
        return NONE.to_owned();
    };
    let mut writer = Writer {
        report: params.report,
        json: String::new(),
        is_sound: true,
    };
    writer.parameters(table);
    if writer.json.len() > MOST_BYTES {
        params.report.push(Problem::new(
            Code::OutOfRange,
            &params.key_span,
            format!(
                "`params` takes {} bytes as JSON; at most {MOST_BYTES} are given to a policy",
                writer.json.len()
            ),
        ));
        return NONE.to_owned();
    }
    writer.json
}

/// Returns the positions of each parameter.
pub(crate) fn places(params: &Item<'_>) -> Vec<ParamPlace> {
    let DeValue::Table(table) = params.value else {
        return Vec::new();
    };
    let place = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| ParamPlace {
        name: key.get_ref().to_string(),
        key: params.report.mark(&key.span()),
        value: params.report.mark(&value.span()),
    };
    table.iter().map(place).collect()
}

struct Writer<'t> {
    report: &'t Report,
    json: String,
    /// The current parameter has a JSON form.
    is_sound: bool,
}

impl Writer<'_> {
    /// Writes the parameters that have a JSON form.
    fn parameters(&mut self, table: &DeTable<'_>) {
        self.json.push('{');
        for (key, value) in table {
            let before = self.json.len();
            if before > 1 {
                self.json.push(',');
            }
            self.string(key.get_ref());
            self.json.push(':');
            self.value(value.get_ref(), &value.span());
            if !std::mem::replace(&mut self.is_sound, true) {
                self.json.truncate(before);
            }
        }
        self.json.push('}');
    }

    /// Writes a table. The parser's map is sorted by key, and its depth is bounded by the parser.
    fn table(&mut self, table: &DeTable<'_>) {
        self.json.push('{');
        for (place, (key, value)) in table.iter().enumerate() {
            if place > 0 {
                self.json.push(',');
            }
            self.string(key.get_ref());
            self.json.push(':');
            self.value(value.get_ref(), &value.span());
        }
        self.json.push('}');
    }

    fn value(&mut self, value: &DeValue<'_>, span: &Span) {
        match value {
            DeValue::String(text) => self.string(text),
            DeValue::Boolean(yes) => self.json.push_str(if *yes { "true" } else { "false" }),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => self.json.push_str(&number.to_string()),
                Err(_) => self.refuse(span, "this number does not fit 64 bits", "write it as a string"),
            },
            DeValue::Float(float) => match float
                .as_str()
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())
            {
                // The debug form keeps the decimal point of a whole number: a float stays a float.
                Some(number) => self.json.push_str(&format!("{number:?}")),
                None => self.refuse(
                    span,
                    "JSON has no such number",
                    "leave the key out for \"unlimited\"",
                ),
            },
            DeValue::Datetime(_) => self.refuse(span, "JSON has no dates", "write it as a string"),
            DeValue::Array(items) => {
                self.json.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        self.json.push(',');
                    }
                    self.value(item.get_ref(), &item.span());
                }
                self.json.push(']');
            }
            DeValue::Table(table) => self.table(table),
        }
    }

    fn string(&mut self, text: &str) {
        self.json.push('"');
        for c in text.chars() {
            match c {
                '"' => self.json.push_str("\\\""),
                '\\' => self.json.push_str("\\\\"),
                '\n' => self.json.push_str("\\n"),
                '\r' => self.json.push_str("\\r"),
                '\t' => self.json.push_str("\\t"),
                c if c < ' ' => {
                    write!(self.json, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
                }
                c => self.json.push(c),
            }
        }
        self.json.push('"');
    }

    fn refuse(&mut self, span: &Span, why: &str, help: &str) {
        self.is_sound = false;
        self.report.push(
            Problem::new(
                Code::InvalidParam,
                span,
                format!("a policy gets its `params` as JSON: {why}"),
            )
            .help(help),
        );
    }
}
