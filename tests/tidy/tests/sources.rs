//! Rules about source files: small, documented, no test skipped, no loose ends.

use std::fmt::Write as _;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use tidy::files;

const MAX_FILE: usize = 500;
const MAX_FUNCTION: usize = 100;

#[track_caller]
fn none(problems: &[String], rule: &str) {
    let list = problems.iter().fold(String::new(), |mut list, problem| {
        let _ = writeln!(list, "  {problem}");
        list
    });
    assert!(problems.is_empty(), "{rule}\n{list}");
}

#[test]
fn every_rust_file_has_at_most_500_lines() {
    let long = files(&["rs"])
        .into_iter()
        .map(|file| (file.text.lines().count(), file.path));
    let long: Vec<_> = long
        .filter(|(lines, _)| *lines > MAX_FILE)
        .map(|(n, path)| format!("{path}: {n}"))
        .collect();
    none(
        &long,
        "split these files by what they are about (about 300 lines each, 500 at most):",
    );
}

#[test]
fn every_function_has_at_most_100_lines() {
    let mut long = Vec::new();
    for file in files(&["rs"]) {
        let tree = syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
        Functions {
            path: &file.path,
            long: &mut long,
        }
        .visit_file(&tree);
    }
    none(&long, "split these functions (about 40 lines each, 100 at most):");
}

struct Functions<'a> {
    path: &'a str,
    long: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = block.span().end().line - block.span().start().line + 1;
        if lines > MAX_FUNCTION {
            self.long.push(format!("{}: {name}: {lines}", self.path));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn every_rust_file_opens_with_what_it_is_for() {
    let bare = files(&["rs"])
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path);
    none(
        &bare.collect::<Vec<_>>(),
        "open these files with a `//!` line that describes them:",
    );
}

#[test]
fn no_test_is_ignored() {
    // Assembled here, so that this file does not match itself.
    let marker = format!("#[{}", "ignore");
    let ignored = files(&["rs"])
        .into_iter()
        .filter(|file| file.text.contains(&marker))
        .map(|file| file.path);
    none(&ignored.collect::<Vec<_>>(), "run these tests or delete them:");
}

#[test]
fn no_loose_end_is_left_in_the_text() {
    let markers = ["TO", "FIX", "XX"].map(|start| {
        format!(
            "{start}{}",
            if start == "TO" {
                "DO"
            } else if start == "FIX" {
                "ME"
            } else {
                "X"
            }
        )
    });
    let mut found = Vec::new();
    for file in files(&["rs", "toml", "wit", "md", "sh", "py"]) {
        for (number, line) in file.text.lines().enumerate() {
            if markers.iter().any(|marker| line.contains(marker.as_str())) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none(&found, "do these, or file them as issues:");
}

#[test]
fn no_line_ends_in_a_space() {
    let mut found = Vec::new();
    for file in files(&["rs", "toml", "wit", "md", "sh", "py"]) {
        let spaced = file
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.ends_with([' ', '\t']));
        found.extend(spaced.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    none(&found, "trailing spaces:");
}
