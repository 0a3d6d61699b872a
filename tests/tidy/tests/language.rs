//! The language of comments, messages and pages: standard terms, doc comments that open with a noun or a verb, short
//! lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidy::files;
use tidy::idioms::{EMPTY_OPENINGS, idioms, words};
use tidy::prose::{markdown_lines, prose};

/// Longest line of a Markdown file and of a comment, in characters.
const MAX_COLUMNS: usize = 120;

/// Openings of names that begin with a relative clause.
const CLAUSES: [&str; 6] = ["what_", "who_", "whoever_", "whatever_", "where_", "how_"];
/// Files that name the avoided words in order to avoid them.
const ABOUT_WORDS: [&str; 2] = ["tests/tidy/", "CONTRIBUTING.md"];

/// Fails with the places that break a rule, by file.
#[track_caller]
fn check(rule: &str, found: &BTreeMap<String, Vec<String>>) {
    let mut report = String::new();
    for (path, places) in found {
        for place in places {
            let _ = writeln!(report, "  {path}:{place}");
        }
    }
    assert!(report.is_empty(), "{rule}\n{report}");
}

#[test]
fn comments_messages_and_pages_use_standard_terms() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in prose() {
        if ABOUT_WORDS.iter().any(|prefix| line.file.starts_with(prefix)) {
            continue;
        }
        for (idiom, instead) in idioms(&line.text) {
            let place = format!("{}: `{idiom}`: write {instead}", line.line);
            found.entry(line.file.clone()).or_default().push(place);
        }
    }
    check("write the field's term:", &found);
}

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(&["rs"]) {
        let mut is_first = true;
        for (at, line) in file.text.lines().enumerate() {
            let trimmed = line.trim_start();
            let doc = trimmed
                .strip_prefix("///")
                .or_else(|| trimmed.strip_prefix("//!"));
            let Some(text) = doc else {
                is_first = true;
                continue;
            };
            let opening = words(text).next().unwrap_or_default();
            if is_first && EMPTY_OPENINGS.contains(&opening.as_str()) {
                let place = format!("{}:{text}", at + 1);
                found.entry(file.path.clone()).or_default().push(place);
            }
            is_first = false;
        }
    }
    check("open these comments with what the thing is or does:", &found);
}

/// Returns true for the line between a table's header and its rows.
fn is_table_rule(line: &str) -> bool {
    line.starts_with('|') && line.contains("---") && line.chars().all(|c| "|-: ".contains(c))
}

/// Returns the numbers of the lines at which a table begins without a header, as after a blank line between two rows.
fn headless_rows(text: &str) -> Vec<usize> {
    let lines = markdown_lines(text);
    let is_row = |number: usize| {
        let found = lines.binary_search_by_key(&number, |(number, _)| *number);
        found.is_ok_and(|at| lines[at].1.starts_with('|'))
    };
    let has_header = |at: usize| {
        let next = lines.get(at + 1);
        next.is_some_and(|(number, line)| *number == lines[at].0 + 1 && is_table_rule(line))
    };
    let rows = lines
        .iter()
        .enumerate()
        .filter(|(_, (number, _))| is_row(*number) && !is_row(number - 1));
    rows.filter(|(at, _)| !has_header(*at))
        .map(|(_, (number, _))| *number)
        .collect()
}

#[test]
fn rows_of_tables_are_below_a_header() {
    assert_eq!(
        headless_rows("| a |\n|---|\n| 1 |\n\n| 2 |\n| 3 |\n\n```\n| 4 |\n```\n"),
        [5]
    );
    let mut found = Vec::new();
    for page in files(&["md"]) {
        let rows = headless_rows(&page.text);
        found.extend(rows.iter().map(|number| format!("{}:{number}", page.path)));
    }
    assert!(
        found.is_empty(),
        "these rows have no header, and are read as text: {found:#?}"
    );
}

#[test]
fn lines_of_pages_have_at_most_120_columns() {
    let mut found = Vec::new();
    for page in files(&["md"]) {
        for (number, line) in markdown_lines(&page.text) {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                found.push(format!("{}:{number}: {columns}", page.path));
            }
        }
    }
    assert!(found.is_empty(), "break these lines: {found:#?}");
}

#[test]
fn comments_have_at_most_120_columns() {
    let mut found = Vec::new();
    for file in files(&["rs"]) {
        let lines = file.text.lines().zip(1..);
        let comments = lines.filter(|(line, _)| line.trim_start().starts_with("//"));
        let long = comments.filter(|(line, _)| line.chars().count() > MAX_COLUMNS);
        found.extend(long.map(|(_, number)| format!("{}:{number}", file.path)));
    }
    assert!(
        found.is_empty(),
        "break these comments, which rustfmt does not: {found:#?}"
    );
}

/// Returns the names of the test functions of a file.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test) {
            is_test = false;
            names.extend(name.split(['(', '<']).next());
        }
    }
    names
}

// A relative clause as the subject hides what a test is about, and one word claims nothing.
#[test]
fn the_names_of_tests_are_claims() {
    let (mut found, mut checked) = (BTreeMap::<String, Vec<String>>::new(), 0);
    for file in files(&["rs"]) {
        for name in test_names(&file.text) {
            checked += 1;
            let is_clause = CLAUSES.iter().any(|opening| name.starts_with(opening));
            if is_clause || name.matches('_').count() < 2 {
                let place = format!(" `{name}`");
                found.entry(file.path.clone()).or_default().push(place);
            }
        }
    }
    assert!(checked > 3_000, "{checked} tests were found");
    check(
        "give these tests a claim as their name, with a noun as its subject:",
        &found,
    );
}
