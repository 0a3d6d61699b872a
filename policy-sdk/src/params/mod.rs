//! Parameters of a policy: typed, described, with defaults; all mistakes are reported at once.
//!
//! Texts are concatenated instead of formatted, because formatting one float adds 17 KB to a component.

mod json_object;

use std::ops::RangeInclusive;

use json_object::Value;

use crate::number_text::decimal;

/// `params` table of a policy in `conductor.toml`.
///
/// Each getter declares its parameter. A given name that no getter has declared is a mistake. After a mistake
/// a getter returns its default. The policy is rejected after it has read everything, with all mistakes and
/// all known parameters.
///
/// The getters also describe the parameters to the router, which shows them and locates mistakes in
/// `conductor.toml`. [`Params::unit`] and [`Params::about`] before a getter complete the description. For it
/// `configure` runs on an empty table: read every parameter unconditionally.
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
    /// Unit of the parameter that is read next.
    unit: &'static str,
    about: &'static str,
    problems: String,
}

/// Description of a parameter for the router.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: String,
    /// `number`, `integer`, `boolean` or `text`.
    pub kind: &'static str,
    /// Default value, as JSON.
    pub default: String,
    /// Unit of a number; empty if it has none.
    pub unit: &'static str,
    /// Minimum of a number; NaN if there is none.
    pub least: f64,
    /// Maximum of a number; NaN if there is none.
    pub most: f64,
    /// Allowed texts; empty if any text is valid.
    pub choices: Vec<String>,
    /// Description in one sentence.
    pub about: &'static str,
}

impl Params {
    /// Parses a JSON object.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let given = json_object::read(text).ok_or("the parameters are not a JSON object")?;
        Ok(Self {
            given,
            known: Vec::new(),
            unit: "",
            about: "",
            problems: String::new(),
        })
    }

    /// Collects the parameters that `configure` reads.
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

    /// Sets the unit of the parameter that is read next, such as `tokens`.
    pub fn unit(&mut self, unit: &'static str) -> &mut Self {
        self.unit = unit;
        self
    }

    /// Sets the description of the parameter that is read next: one sentence that starts with a noun.
    pub fn about(&mut self, about: &'static str) -> &mut Self {
        self.about = about;
        self
    }

    /// Reads a number within `range`.
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

    /// Reads an integer within `range`; integers above 2^53 lose precision.
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

    /// Reads a boolean.
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

    /// Reads a text.
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

    /// Reads one of several texts and returns the value that belongs to it.
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

    /// Reads the parameters of a shared part, of which the policy offers only those in `names`. The others have
    /// their defaults, and are unknown parameters if they are given.
    pub fn only<T>(&mut self, names: &[&str], configure: impl FnOnce(&mut Self) -> T) -> T {
        let is_offered = |name: &str| names.contains(&name);
        let given = std::mem::take(&mut self.given);
        let (offered, others): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _)| is_offered(name));
        self.given = offered;
        let before = self.known.len();
        let part = configure(self);
        let read = self.known.split_off(before);
        self.known
            .extend(read.into_iter().filter(|parameter| is_offered(&parameter.name)));
        self.given.extend(others);
        part
    }

    /// Rejects the parameters for a reason that only the policy can check, such as a contradiction between
    /// two of them.
    pub fn refuse(&mut self, why: &str) {
        self.problem(&[why]);
    }

    /// Returns all mistakes, one a line, followed by the known parameters.
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
                "` is not finite, and JSON has no such number",
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

/// Encodes a text as JSON.
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
    fn missing_parameters_have_their_defaults() {
        assert_eq!(read("{}"), (0.5, false, "any".into(), Ok(())));
    }

    #[test]
    fn a_shared_part_offers_only_some_of_its_parameters() {
        let configure = |params: &mut Params| {
            params.only(&["price"], |part| {
                (part.number("price", 0.5, 0.0..=10.0), part.flag("sticky", false))
            })
        };
        let mut params = Params::parse(r#"{"price": 2, "sticky": true}"#).unwrap();
        assert_eq!(configure(&mut params), (2.0, false));
        let refused = params.finish().unwrap_err();
        assert!(refused.starts_with("unknown parameter `sticky`"), "{refused}");
        let offered = Params::describe(|params| {
            configure(params);
        });
        let offered: Vec<&str> = offered.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(offered, ["price"]);
    }

    #[test]
    fn given_parameters_are_read() {
        let given = r#"{"zone": "a\"b", "sticky": true, "price": 2}"#;
        assert_eq!(read(given), (2.0, true, "a\"b".into(), Ok(())));
        assert_eq!(read(r#"{"price": 2.5e-1}"#).0, 0.25);
    }

    #[test]
    fn every_mistake_is_reported_with_the_known_parameters() {
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
    fn a_parameter_is_described_by_its_getter() {
        let described = Params::describe(|params| {
            params
                .unit("ms")
                .about("Maximum wait.")
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
            (0.0, f64::INFINITY, "Maximum wait.")
        );
        assert_eq!(shown(zone), ("text", r#""a\"\\\u000a""#.into(), ""));
        assert!(zone.least.is_nan() && zone.about.is_empty());
        assert_eq!(shown(ties), ("text", r#""random""#.into(), ""));
        assert_eq!(ties.choices, ["random", "first"]);
    }

    #[test]
    fn a_text_that_is_no_object_is_rejected() {
        for text in ["", "[]", "3", "{", r#"{"a": }"#] {
            assert!(Params::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_default_that_is_not_finite_is_rejected() {
        let mut params = Params::parse("{}").unwrap();
        params.number("most", f64::INFINITY, 0.0..=f64::INFINITY);
        assert!(params.finish().unwrap_err().contains("`most` is not finite"));
    }
}
