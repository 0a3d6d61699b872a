//! The reference of the policy contract in the book: written from `wit/policy.wit`, and compared with the file.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;

use tidy::root;

const PAGE: &str = "host/docs/policies/contract.md";
/// Longest line of the page.
const WIDTH: usize = 120;

/// Interface or world of the contract.
struct Section<'a> {
    /// `interface` or `world`.
    kind: &'a str,
    name: &'a str,
    /// Its lines, with the comment before it.
    lines: Vec<&'a str>,
}

impl Section<'_> {
    /// Returns the names behind a keyword, such as `export`.
    fn named(&self, keyword: &str) -> Vec<&str> {
        let names = self.lines.iter().filter_map(|line| {
            let rest = line.trim().strip_prefix(keyword)?.strip_prefix(' ')?;
            rest.strip_suffix(';')
        });
        names.collect()
    }

    /// Returns the names of the functions.
    fn functions(&self) -> Vec<&str> {
        let names = self.lines.iter().filter_map(|line| line.split_once(": func("));
        names.map(|(name, _)| name.trim()).collect()
    }
}

/// Returns the interfaces and worlds, in the order of the text.
fn sections(wit: &str) -> Vec<Section<'_>> {
    let mut found: Vec<Section<'_>> = Vec::new();
    let mut comment = Vec::new();
    let mut inside = false;
    for line in wit.lines() {
        if inside {
            if let Some(section) = found.last_mut() {
                section.lines.push(line);
            }
            inside = line != "}";
            continue;
        }
        if line.starts_with("///") {
            comment.push(line);
            continue;
        }
        let lines = std::mem::take(&mut comment);
        let opened = line.strip_suffix(" {").and_then(|line| line.split_once(' '));
        if let Some((kind, name)) = opened {
            inside = true;
            let lines = lines.into_iter().chain([line]).collect();
            found.push(Section { kind, name, lines });
        }
    }
    found
}

/// Returns the part that an interface has in the contract.
fn part(name: &str, worlds: &BTreeMap<&str, &Section<'_>>) -> &'static str {
    let exports = |world: &str| worlds[world].named("export").contains(&name);
    if worlds["imports"].named("import").contains(&name) {
        "the router"
    } else if exports("scheduler") && exports("scorer") {
        "every policy"
    } else if exports("scheduler") {
        "a scheduler"
    } else if exports("scorer") {
        "a scorer"
    } else if exports("everything") {
        "a policy, optionally"
    } else {
        "types of the others"
    }
}

/// Returns a line of the contract, with a comment that is too long continued in a second line.
fn wrapped(line: &str) -> String {
    let text = line.trim_start();
    let Some(comment) = text.strip_prefix("/// ").filter(|_| line.chars().count() > WIDTH) else {
        return line.to_owned();
    };
    let indent = &line[..line.len() - text.len()];
    let mut lines = vec![format!("{indent}///")];
    for word in comment.split(' ') {
        if lines
            .last()
            .is_some_and(|last| last.chars().count() + word.chars().count() >= WIDTH)
        {
            lines.push(format!("{indent}///"));
        }
        if let Some(last) = lines.last_mut() {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines.join("\n")
}

/// Writes the page.
fn page(wit: &str) -> String {
    let sections = sections(wit);
    let worlds: BTreeMap<&str, &Section<'_>> = sections
        .iter()
        .filter(|section| section.kind == "world")
        .map(|section| (section.name, section))
        .collect();
    let package = wit.lines().next().unwrap_or_default();
    let package = package.trim_start_matches("package ").trim_end_matches(';');
    let mut page = format!(
        "# Reference of the policy contract\n\n    \
         UPDATE_CONTRACT=1 cargo nextest run -p tidy reference_of_the_contract\n\n\
         The command writes this page from `wit/policy.wit`, package `{package}`.\n\
         [The contract](../../../wit/README.md) explains it: a policy's life, every number by name, verdicts and versions.\n\n\
         | interface | implemented by | functions |\n|---|---|---|\n"
    );
    for section in sections.iter().filter(|section| section.kind == "interface") {
        let functions: Vec<String> = section
            .functions()
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let (name, part) = (section.name, part(section.name, &worlds));
        let functions = functions.join(", ");
        let _ = writeln!(page, "| [`{name}`](#interface-{name}) | {part} | {functions} |");
    }
    for section in &sections {
        let _ = write!(
            page,
            "\n## {} `{}`\n\n```wit\n",
            title(section.kind),
            section.name
        );
        for line in &section.lines {
            let _ = writeln!(page, "{}", wrapped(line));
        }
        page.push_str("```\n");
    }
    page
}

fn title(kind: &str) -> &str {
    match kind {
        "world" => "World",
        _ => "Interface",
    }
}

#[test]
fn the_reference_of_the_contract_is_that_of_the_wit() {
    let wit = fs::read_to_string(root().join("wit/policy.wit")).expect("the contract");
    let expected = page(&wit);
    if env::var_os("UPDATE_CONTRACT").is_some() {
        fs::write(root().join(PAGE), &expected).expect("the page is writable");
    }
    let written = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    let command = "run `UPDATE_CONTRACT=1 cargo nextest run -p tidy reference_of_the_contract`";
    assert!(
        written == expected,
        "{PAGE} is not that of the contract: {command}"
    );
}

#[test]
fn the_page_has_every_function_of_the_contract() {
    let wit = fs::read_to_string(root().join("wit/policy.wit")).expect("the contract");
    let sections = sections(&wit);
    let functions: usize = sections.iter().map(|section| section.functions().len()).sum();
    assert_eq!(functions, wit.matches(": func(").count());
    let lines: usize = sections.iter().map(|section| section.lines.len()).sum();
    assert!(lines > 300, "{lines}");
}

#[test]
fn a_long_comment_continues_in_a_second_line_and_loses_no_word() {
    let line = format!("  /// {}", "word ".repeat(30).trim_end());
    let wrapped = wrapped(&line);
    assert_eq!(wrapped.lines().count(), 2);
    assert!(
        wrapped
            .lines()
            .all(|line| line.chars().count() <= WIDTH && line.starts_with("  /// word"))
    );
    assert_eq!(wrapped.matches("word").count(), 30);
}
