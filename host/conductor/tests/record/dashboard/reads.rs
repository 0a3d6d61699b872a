//! Keys that a module of the dashboard reads, found in its text.

use std::collections::BTreeSet;

/// Members of JavaScript's own objects, and of the browser's. Names with capitals are no keys of pages.
const LANGUAGE: [&str; 43] = [
    "abort",
    "aborted",
    "abs",
    "add",
    "all",
    "assign",
    "at",
    "body",
    "current",
    "delete",
    "entries",
    "every",
    "files",
    "fill",
    "filter",
    "find",
    "focus",
    "get",
    "includes",
    "join",
    "json",
    "keys",
    "length",
    "map",
    "max",
    "message",
    "min",
    "open",
    "parse",
    "reduce",
    "replace",
    "reverse",
    "set",
    "signal",
    "size",
    "slice",
    "some",
    "sort",
    "split",
    "stringify",
    "trim",
    "value",
    "values",
];
/// Members of what the dashboard's own functions return: the state of a page, and an answer.
const OWN: [&str; 4] = ["data", "error", "page", "reload"];

/// Keys that a module reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// Keys that are taken from one object.
    pub(super) patterns: Vec<BTreeSet<String>>,
    /// Keys that are taken one at a time.
    pub(super) members: BTreeSet<String>,
}

impl Reads {
    /// Finds the reads of a module. The properties of a component and the results of hooks are no keys of pages.
    pub(super) fn of(text: &str) -> Self {
        let is_code = |line: &&str| {
            let line = line.trim_start();
            !["//", "/**", "*", "import "]
                .iter()
                .any(|begin| line.starts_with(begin))
        };
        let text: Vec<&str> = text.lines().filter(is_code).collect();
        let text = text.join("\n");
        let opened = text.match_indices('{');
        let patterns = opened.filter_map(|(at, _)| pattern(&text[..at], &text[at + 1..]));
        let members = text.char_indices().filter_map(|(at, letter)| match letter {
            '.' => member(&text[..at], &text[at + 1..]),
            '[' => bracketed(&text[..at], &text[at + 1..]),
            _ => None,
        });
        let is_lower = |name: &str| !name.contains(char::is_uppercase);
        let is_key = |name: &&str| is_lower(name) && !LANGUAGE.contains(name) && !OWN.contains(name);
        Self {
            patterns: patterns
                .filter(|keys| !keys.iter().all(|key| OWN.contains(&&**key)))
                .collect(),
            members: members.filter(is_key).map(str::to_owned).collect(),
        }
    }
}

/// Returns the keys of a destructuring pattern, given the text before and after its brace.
fn pattern(before: &str, after: &str) -> Option<BTreeSet<String>> {
    let (inner, rest) = after.split_once('}')?;
    if inner.contains(['{', '(', ')', '<', '>', '`', ';']) {
        return None;
    }
    let (before, rest) = (before.trim_end(), rest.trim_start());
    let is_read = if let Some(assigned) = rest.strip_prefix("= ") {
        before.ends_with("const") && !assigned.starts_with("use")
    } else if let Some((parameters, rest)) = rest.split_once(')') {
        let is_plain = |letter: char| letter.is_alphanumeric() || " ,".contains(letter);
        parameters.chars().all(is_plain)
            && (rest.starts_with(" =>") || rest.starts_with(" {") && is_function(before))
    } else {
        false
    };
    is_read.then(|| {
        let names = inner.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty() && !name.starts_with("..."));
        names.map(|name| key_of(name).to_owned()).collect()
    })
}

/// Returns true if the text ends within the parameters of a function that is no component.
fn is_function(before: &str) -> bool {
    let name = before.rsplit_once('(').map_or("", |(head, _)| head);
    let name = name.rsplit(' ').next().unwrap_or_default();
    name.starts_with(|letter: char| letter.is_lowercase())
}

/// Returns the key of `key`, `key: name`, `'the-key': name` or `key = default`.
fn key_of(part: &str) -> &str {
    let key = part.split([':', '=']).next().unwrap_or_default();
    key.trim().trim_matches('\'')
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns true if the text ends with something that can have members.
fn is_value(before: &str) -> bool {
    let before = before.strip_suffix('?').unwrap_or(before);
    before.ends_with(|letter: char| is_of_a_name(letter) || letter == ')' || letter == ']')
}

/// Returns the name after a dot.
fn member<'t>(before: &str, after: &'t str) -> Option<&'t str> {
    let end = after.find(|letter| !is_of_a_name(letter)).unwrap_or(after.len());
    let name = &after[..end];
    (is_value(before) && name.starts_with(|letter: char| letter.is_lowercase())).then_some(name)
}

/// Returns the text between `['` and `']`.
fn bracketed<'t>(before: &str, after: &'t str) -> Option<&'t str> {
    let (name, _) = after.strip_prefix('\'')?.split_once("']")?;
    let before = before.strip_suffix('.').unwrap_or(before);
    (is_value(before) && name.chars().all(|letter| is_of_a_name(letter) || letter == '-')).then_some(name)
}

#[test]
fn reads_are_found_and_what_is_no_key_of_a_page_is_not() {
    let text = r"
import { one } from './file.js';
// A comment.with a dot
const COLUMNS = [{ name: 'A', cell: ({ from_page, 'a-key': renamed }) => from_page.nested?.deep }];
export function Component({ property, children }) {
  const { data, error } = useResource('/admin/page');
  const { summary, paired = [] } = data.result;
  return html`<p title=${data['the-key']}>${summary}</p>${list.map(({ id }, index) => id)}`;
}
function helper(area, { line, ...rest }) {
  return area.map(Number).length;
}
";
    let reads = Reads::of(text);
    let pattern = |keys: &[&str]| {
        keys.iter()
            .map(|key| (*key).to_owned())
            .collect::<BTreeSet<String>>()
    };
    let patterns: [&[&str]; 4] = [
        &["a-key", "from_page"],
        &["paired", "summary"],
        &["id"],
        &["line"],
    ];
    assert_eq!(reads.patterns, patterns.map(pattern));
    assert_eq!(reads.members, pattern(&["deep", "nested", "result", "the-key"]));
}
