//! Text of other programs, made fit for a terminal.

use conductor_config::spelt_out;
use serde_json::Value;

/// Member with lines of a configuration. Its line breaks stay.
const LINES: &str = "toml";
/// Member with advice, which may have lines of a configuration. Its line breaks become spaces.
const ADVICE: &str = "help";

/// Returns the page with every control character spelt out. Clients choose ids and models, and may put control
/// sequences into them.
#[must_use]
pub fn printable(page: Value) -> Value {
    match page {
        Value::String(text) => Value::String(spelt_out(&text, false).into_owned()),
        Value::Array(items) => items.into_iter().map(printable).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| match member {
                Value::String(text) if name == LINES => {
                    (name, Value::String(spelt_out(&text, true).into_owned()))
                }
                Value::String(text) if name == ADVICE => {
                    let line = text.replace('\n', " ");
                    (name, Value::String(spelt_out(&line, false).into_owned()))
                }
                member => (spelt_out(&name, false).into_owned(), printable(member)),
            })
            .collect(),
        plain => plain,
    }
}

/// Returns a text of several lines with every other control character spelt out.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    spelt_out(text, true).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_cannot_make_a_terminal_obey() {
        let page = json!({ "model": ["m\u{1b}[31m\nfake"], "plain": "caf\u{e9}", "a\u{1b}": 1 });
        let expected = json!({ "model": ["m\\u{1b}[31m\\nfake"], "plain": "caf\u{e9}", "a\\u{1b}": 1 });
        assert_eq!(printable(page), expected);
    }

    #[test]
    fn advice_of_several_lines_is_one_line() {
        let page = json!({ "help": "name it, for example\n[[routes]]\u{1b}" });
        assert_eq!(
            printable(page),
            json!({ "help": "name it, for example [[routes]]\\u{1b}" })
        );
    }

    #[test]
    fn lines_of_a_configuration_stay_lines() {
        let page = json!({ "toml": "policy = \"a\\n\"\nx = 1\u{1b}[2J" });
        assert_eq!(
            printable(page),
            json!({ "toml": "policy = \"a\\n\"\nx = 1\\u{1b}[2J" })
        );
    }
}
