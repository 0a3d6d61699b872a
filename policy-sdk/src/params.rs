//! A policy's parameters: typed, with defaults, every mistake reported at once.
//!
//! Text is put together by hand, not by `format!` with numbers: formatting one float costs a component 17 KB.

mod given;

use std::ops::RangeInclusive;

use given::Value;

/// The `params` table of a policy in `conductor.toml`. Each getter makes its parameter known; what was given and
/// is not known in the end is a mistake. After a mistake a getter answers its default, and the policy is refused
/// once it has read everything, with all mistakes and all known parameters.
///
/// Name a parameter with its unit: `hold-ms`, `request-tokens`.
#[derive(Debug)]
pub struct Params {
    given: Vec<(String, Value)>,
    known: String,
    problems: String,
}

impl Params {
    /// Reads a JSON object.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self {
            given: given::read(text).ok_or("the parameters are not a JSON object")?,
            known: String::new(),
            problems: String::new(),
        })
    }

    /// A number within `range`.
    pub fn number(&mut self, name: &str, default: f64, range: RangeInclusive<f64>) -> f64 {
        self.know(name, &decimal(default));
        match self.take(name) {
            None => default,
            Some(Value::Number(number)) if range.contains(&number) => number,
            Some(_) => {
                let (from, to) = (decimal(*range.start()), decimal(*range.end()));
                self.problem(&["`", name, "` must be a number from ", &from, " to ", &to]);
                default
            }
        }
    }

    /// True or false.
    pub fn flag(&mut self, name: &str, default: bool) -> bool {
        self.know(name, if default { "true" } else { "false" });
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
        self.know(name, &["\"", default, "\""].concat());
        match self.take(name) {
            None => default.to_owned(),
            Some(Value::Text(text)) => text,
            Some(_) => {
                self.problem(&["`", name, "` must be a text"]);
                default.to_owned()
            }
        }
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
        if self.known.is_empty() {
            self.problem(&["the policy has no parameters"]);
        } else {
            let known = std::mem::take(&mut self.known);
            self.problem(&["the parameters and their defaults are ", &known]);
        }
        Err(self.problems)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.swap_remove(index).1)
    }

    fn know(&mut self, name: &str, default: &str) {
        let separator = if self.known.is_empty() { "" } else { ", " };
        append(&mut self.known, &[separator, name, " = ", default]);
    }

    fn problem(&mut self, parts: &[&str]) {
        let separator = if self.problems.is_empty() { "" } else { "\n" };
        append(&mut self.problems, &[separator]);
        append(&mut self.problems, parts);
    }
}

fn append(text: &mut String, parts: &[&str]) {
    for part in parts {
        text.push_str(part);
    }
}

/// A number as people write it, to the millionth; enough for defaults and bounds.
fn decimal(number: f64) -> String {
    const MILLION: u64 = 1_000_000;
    let millionths = (number.abs() * MILLION as f64 + 0.5) as u64;
    let mut digits = Vec::new();
    let (mut whole, mut fraction) = (millionths / MILLION, millionths % MILLION);
    if fraction > 0 {
        for _ in 0..6 {
            let digit = b'0' + (fraction % 10) as u8;
            if !(digits.is_empty() && digit == b'0') {
                digits.push(digit);
            }
            fraction /= 10;
        }
        digits.push(b'.');
    }
    loop {
        digits.push(b'0' + (whole % 10) as u8);
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    if number < 0.0 {
        digits.push(b'-');
    }
    digits.iter().rev().map(|&digit| char::from(digit)).collect()
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
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "3", "{", r#"{"a": }"#] {
            assert!(Params::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn decimals_read_as_written() {
        for (number, text) in [
            (0.0, "0"),
            (0.75, "0.75"),
            (-1.5, "-1.5"),
            (0.000_001, "0.000001"),
            (1_048_576.0, "1048576"),
            (10.05, "10.05"),
        ] {
            assert_eq!(decimal(number), text);
        }
    }
}
