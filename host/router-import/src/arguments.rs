//! Words of a command line as flags with their values.

use crate::rule::{FlagRule, Takes};

/// Flag of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenFlag {
    /// Name as it was written.
    pub(crate) name: String,
    /// Its values.
    pub(crate) values: Vec<String>,
}

/// Returns the flags of a command line. Words before the first flag are the name of the program.
pub(crate) fn given_flags(words: &[String], rule: impl Fn(&str) -> Option<FlagRule>) -> Vec<GivenFlag> {
    let mut flags: Vec<GivenFlag> = Vec::new();
    let mut words = words.iter().skip_while(|word| !is_flag(word)).peekable();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if is_flag(word) => (name, Some(value.to_owned())),
            _ => (&**word, None),
        };
        let takes = rule(name).map_or(Takes::Many, |rule| rule.takes);
        let most = match (takes, &inline) {
            (_, Some(_)) | (Takes::Nothing, None) => 0,
            (Takes::One, None) => 1,
            (Takes::Many, None) => usize::MAX,
        };
        let mut values: Vec<String> = inline.into_iter().collect();
        while values.len() < most {
            // The value of a flag may be negative.
            let is_value = |word: &&String| !is_flag(word) || word.parse::<f64>().is_ok();
            let Some(value) = words.next_if(is_value) else {
                break;
            };
            values.push(value.clone());
        }
        let name = name.to_owned();
        flags.push(GivenFlag { name, values });
    }
    flags
}

fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Effect, many, one, switch};

    #[test]
    fn flags_are_read_with_their_values_in_every_form() {
        let rules = [
            one("--port", Effect::Port),
            many("--urls", Effect::Absent("")),
            switch("--on", Effect::Absent("")),
        ];
        let rule = |name: &str| rules.iter().find(|rule| rule.name == name).copied();
        let words = [
            "python", "-m", "x", "--urls", "a", "b", "--port=1", "--on", "--limit", "-1", "--port", "2",
        ];
        let words: Vec<String> = words.map(str::to_owned).to_vec();
        let flags = given_flags(&words[3..], rule);
        let flags: Vec<(&str, String)> = flags
            .iter()
            .map(|flag| (&*flag.name, flag.values.join(" ")))
            .collect();
        let expected = [
            ("--urls", "a b"),
            ("--port", "1"),
            ("--on", ""),
            ("--limit", "-1"),
            ("--port", "2"),
        ];
        let expected: Vec<(&str, String)> = expected
            .iter()
            .map(|(name, values)| (*name, (*values).to_owned()))
            .collect();
        assert_eq!(flags, expected);
    }
}
