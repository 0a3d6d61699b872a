//! A policy's parameters: typed, described, with defaults, every mistake reported at once.
//!
//! Text is put together by hand, not by `format!` with numbers: formatting one float costs a component 17 KB.

mod given;

use std::ops::RangeInclusive;

use given::Value;

use crate::number_text::decimal;

/// The `params` table of a policy in `conductor.toml`. Each getter makes its parameter known; what was given and
/// is not known in the end is a mistake. After a mistake a getter answers its default, and the policy is refused
/// once it has read everything, with all mistakes and all known parameters.
///
/// What is read is also what the router is told the parameters are, so that it can show them and point at mistakes in
/// `conductor.toml`: [`Params::unit`] and [`Params::about`] before a getter say the rest of it. For that `configure` is
/// run on no parameters at all: read each of them always, not only where another one asks for it.
///
/// ```
/// # use conductor_policy_sdk::Params;
/// # fn configure(params: &mut Params) -> f64 {
/// params
///     .unit("tokens")
///     .about("What a request costs besides its prompt.")
///     .number("request-tokens", 128.0, 0.0..=1_000_000.0)
/// # }
/// ```
#[derive(Debug)]
pub struct Params {
    given: Vec<(String, Value)>,
    known: Vec<Parameter>,
    /// Of the parameter that is read next.
    unit: &'static str,
    about: &'static str,
    problems: String,
}

/// A parameter as the router is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// `number`, `integer`, `boolean` or `text`.
    pub kind: &'static str,
    /// What it is when it is not given, as JSON.
    pub default: String,
    /// The unit of a number; empty where it has none.
    pub unit: &'static str,
    /// The least number; NaN where there is no bound.
    pub least: f64,
    /// The greatest number; NaN where there is no bound.
    pub most: f64,
    /// The texts it may be; empty where it may be any.
    pub choices: Vec<String>,
    /// What it does, in a sentence.
    pub about: &'static str,
}

impl Params {
    /// Reads a JSON object.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let given = given::read(text).ok_or("the parameters are not a JSON object")?;
        Ok(Self {
            given,
            known: Vec::new(),
            unit: "",
            about: "",
            problems: String::new(),
        })
    }

    /// What `configure` reads.
    pub(crate) fn describe(configure: impl FnOnce(&mut Self)) -> Vec<Parameter> {
        let mut params = Self {
            given: Vec::new(),
            known: Vec::new(),
            unit: "",
            about: "",
            problems: String::new(),
        };
        configure(&mut params);
        params.known
    }

    /// The unit of the parameter that is read next, such as `tokens`.
    pub fn unit(&mut self, unit: &'static str) -> &mut Self {
        self.unit = unit;
        self
    }

    /// What the parameter that is read next does, in a sentence.
    pub fn about(&mut self, about: &'static str) -> &mut Self {
        self.about = about;
        self
    }

    /// A number within `range`.
    pub fn number(&mut self, name: &str, default: f64, range: RangeInclusive<f64>) -> f64 {
        self.know_number(name, "number", default, &range);
        match self.take(name) {
            None => default,
            Some(Value::Number(number)) if range.contains(&number) => number,
            Some(_) => {
                self.out_of(name, "` must be a number from ", &range);
                default
            }
        }
    }

    /// A whole number within `range`, of which at most 2^53 are told apart.
    pub fn integer(&mut self, name: &str, default: i64, range: RangeInclusive<i64>) -> i64 {
        let range = *range.start() as f64..=*range.end() as f64;
        self.know_number(name, "integer", default as f64, &range);
        match self.take(name) {
            None => default,
            Some(Value::Number(number)) if range.contains(&number) && number as i64 as f64 == number => {
                number as i64
            }
            Some(_) => {
                self.out_of(name, "` must be a whole number from ", &range);
                default
            }
        }
    }

    /// True or false.
    pub fn flag(&mut self, name: &str, default: bool) -> bool {
        self.know(
            name,
            "boolean",
            String::from(if default { "true" } else { "false" }),
        );
        match self.take(name) {
            None => default,
            Some(Value::Flag(flag)) => flag,
            Some(_) => {
                self.problem(&["`", name, "` must be true or false"]);
                default
            }
        }
    }

    /// A text.
    pub fn text(&mut self, name: &str, default: &str) -> String {
        self.know(name, "text", quoted(default));
        match self.take(name) {
            None => default.to_owned(),
            Some(Value::Text(text)) => text,
            Some(_) => {
                self.problem(&["`", name, "` must be a text"]);
                default.to_owned()
            }
        }
    }

    /// One of several texts, and what stands for it.
    pub fn choice<T: Copy>(&mut self, name: &str, default: (&str, T), others: &[(&str, T)]) -> T {
        let choices = || std::iter::once(&default).chain(others);
        let parameter = self.know(name, "text", quoted(default.0));
        parameter.choices = choices().map(|(text, _)| String::from(*text)).collect();
        let given = match self.take(name) {
            None => return default.1,
            Some(Value::Text(text)) => text,
            Some(_) => String::new(),
        };
        if let Some((_, chosen)) = choices().find(|(text, _)| *text == given) {
            return *chosen;
        }
        self.problem(&["`", name, "` must be one of"]);
        for (text, _) in choices() {
            append(&mut self.problems, &[" `", text, "`"]);
        }
        default.1
    }

    /// Refuses the parameters for a reason that only the policy can see, such as two that contradict each other.
    pub fn refuse(&mut self, why: &str) {
        self.problem(&[why]);
    }

    /// Every mistake, one a line, and what is known.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        for (name, _) in std::mem::take(&mut self.given) {
            self.problem(&["unknown parameter `", &name, "`"]);
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        let known = std::mem::take(&mut self.known);
        if known.is_empty() {
            self.problem(&["the policy has no parameters"]);
        }
        for (position, Parameter { name, default, .. }) in known.iter().enumerate() {
            let before = match position {
                0 => "\nthe parameters and their defaults are ",
                _ => ", ",
            };
            append(&mut self.problems, &[before, name, " = ", default]);
        }
        Err(self.problems)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.swap_remove(index).1)
    }

    fn know_number(&mut self, name: &str, kind: &'static str, default: f64, range: &RangeInclusive<f64>) {
        if !default.is_finite() {
            self.problem(&[
                "the default of `",
                name,
                "` is no finite number, which JSON has not",
            ]);
        }
        let parameter = self.know(name, kind, decimal(default));
        (parameter.least, parameter.most) = (*range.start(), *range.end());
    }

    fn know(&mut self, name: &str, kind: &'static str, default: String) -> &mut Parameter {
        let parameter = Parameter {
            name: name.to_owned(),
            kind,
            default,
            unit: std::mem::take(&mut self.unit),
            least: f64::NAN,
            most: f64::NAN,
            choices: Vec::new(),
            about: std::mem::take(&mut self.about),
        };
        self.known.push(parameter);
        let last = self.known.len() - 1;
        &mut self.known[last]
    }

    fn out_of(&mut self, name: &str, must: &str, range: &RangeInclusive<f64>) {
        let (from, to) = (decimal(*range.start()), decimal(*range.end()));
        self.problem(&["`", name, must, &from, " to ", &to]);
    }

    fn problem(&mut self, parts: &[&str]) {
        let separator = if self.problems.is_empty() { "" } else { "\n" };
        append(&mut self.problems, &[separator]);
        append(&mut self.problems, parts);
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut json = String::from("\"");
    for letter in text.chars() {
        if letter < ' ' {
            let code = letter as usize;
            json.push_str("\\u00");
            json.push(char::from(HEX[code / 16]));
            json.push(char::from(HEX[code % 16]));
            continue;
        }
        if letter == '"' || letter == '\\' {
            json.push('\\');
        }
        json.push(letter);
    }
    json.push('"');
    json
}

fn append(text: &mut String, parts: &[&str]) {
    for part in parts {
        text.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (f64, bool, String, Result<(), String>) {
        let mut params = Params::parse(text).unwrap();
        (
            params.number("price", 0.5, 0.0..=10.0),
            params.flag("sticky", false),
            params.text("zone", "any"),
            params.finish(),
        )
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        assert_eq!(read("{}"), (0.5, false, "any".into(), Ok(())));
    }

    #[test]
    fn what_is_given_is_read() {
        let given = r#"{"zone": "a\"b", "sticky": true, "price": 2}"#;
        assert_eq!(read(given), (2.0, true, "a\"b".into(), Ok(())));
        assert_eq!(read(r#"{"price": 2.5e-1}"#).0, 0.25);
    }

    #[test]
    fn every_mistake_is_reported_with_what_is_known() {
        let given = r#"{"price": 11, "pirce": [1, {"a": 2}], "sticky": 1, "zone": null}"#;
        let (price, _, _, result) = read(given);
        assert_eq!(price, 0.5);
        assert_eq!(
            result.unwrap_err(),
            "`price` must be a number from 0 to 10\n\
             `sticky` must be true or false\n\
             `zone` must be a text\n\
             unknown parameter `pirce`\n\
             the parameters and their defaults are price = 0.5, sticky = false, zone = \"any\""
        );
    }

    #[test]
    fn whole_numbers_and_choices_are_checked_too() {
        let read = |text: &str| {
            let mut params = Params::parse(text).unwrap();
            let tries = params.integer("tries", 3, 1..=10);
            let ties = params.choice("ties", ("random", 0), &[("first", 1), ("last", 2)]);
            (tries, ties, params.finish())
        };
        assert_eq!(read("{}"), (3, 0, Ok(())));
        assert_eq!(read(r#"{"tries": 10, "ties": "last"}"#), (10, 2, Ok(())));
        for (text, problem) in [
            (
                r#"{"tries": 1.5}"#,
                "`tries` must be a whole number from 1 to 10\n",
            ),
            (
                r#"{"tries": 11}"#,
                "`tries` must be a whole number from 1 to 10\n",
            ),
            (
                r#"{"ties": "none"}"#,
                "`ties` must be one of `random` `first` `last`\n",
            ),
            (
                r#"{"ties": 1}"#,
                "`ties` must be one of `random` `first` `last`\n",
            ),
        ] {
            let (tries, ties, result) = read(text);
            assert_eq!((tries, ties), (3, 0));
            assert!(result.unwrap_err().starts_with(problem), "{text}");
        }
    }

    #[test]
    fn a_parameter_is_described_as_it_is_read() {
        let described = Params::describe(|params| {
            params
                .unit("ms")
                .about("How long it waits.")
                .number("wait", 0.5, 0.0..=f64::INFINITY);
            params.text("zone", "a\"\\\n");
            params.choice("ties", ("random", 0), &[("first", 1)]);
        });
        let [wait, zone, ties] = described.as_slice() else {
            panic!("{described:?}");
        };
        let shown = |parameter: &Parameter| (parameter.kind, parameter.default.clone(), parameter.unit);
        assert_eq!(shown(wait), ("number", "0.5".into(), "ms"));
        assert_eq!(
            (wait.least, wait.most, wait.about),
            (0.0, f64::INFINITY, "How long it waits.")
        );
        assert_eq!(shown(zone), ("text", r#""a\"\\\u000a""#.into(), ""));
        assert!(zone.least.is_nan() && zone.about.is_empty());
        assert_eq!(shown(ties), ("text", r#""random""#.into(), ""));
        assert_eq!(ties.choices, ["random", "first"]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "3", "{", r#"{"a": }"#] {
            assert!(Params::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_default_that_json_has_not_is_refused() {
        let mut params = Params::parse("{}").unwrap();
        params.number("most", f64::INFINITY, 0.0..=f64::INFINITY);
        assert!(
            params
                .finish()
                .unwrap_err()
                .contains("`most` is no finite number")
        );
    }
}
