//! Text that people read: comments and string literals of Rust files, comments and docstrings of others, and Markdown.

use proc_macro2::{TokenStream, TokenTree};

use crate::{SourceFile, files};

/// A line of text that people read.
#[derive(Debug, Clone)]
pub struct ProseLine {
    /// File, relative to the root.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The text without its comment marker, code spans and quoted code removed.
    pub text: String,
}

/// Returns the prose of every file of the repository.
#[must_use]
pub fn prose() -> Vec<ProseLine> {
    let mut found = Vec::new();
    for file in files(&["rs"]) {
        rust(&file, &mut found);
    }
    for file in files(&["toml", "md", "wit", "sh", "js", "mjs", "py"]) {
        text(&file, &mut found);
    }
    found
}

/// Returns the file's lines of Markdown outside code blocks.
#[must_use]
pub fn markdown_lines(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            found.push((at + 1, line));
        }
    }
    found
}

fn text(file: &SourceFile, found: &mut Vec<ProseLine>) {
    let lines = match file.path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("md") => markdown_lines(&file.text),
        Some("wit") => comments(&file.text, &["//"]),
        Some("js" | "mjs") => comments(&file.text, &["//", "/**", " * "]),
        Some("py") => docstrings(&file.text),
        _ => comments(&file.text, &["#"]),
    };
    for (line, text) in lines {
        push(file, line, text, found);
    }
}

/// Returns the text of each line after the first of these markers that it has.
fn comments<'a>(text: &'a str, markers: &[&str]) -> Vec<(usize, &'a str)> {
    let after = |line: &'a str| markers.iter().find_map(|marker| line.split_once(marker));
    let lines = text.lines().zip(1..);
    lines
        .filter_map(|(line, number)| Some((number, after(line)?.1)))
        .collect()
}

/// Returns the lines of a Python file's docstrings, and its comments.
fn docstrings(text: &str) -> Vec<(usize, &str)> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let quotes = line.matches("\"\"\"").count();
        if is_inside || quotes > 0 {
            found.push((number, line));
        } else if let Some((_, comment)) = line.split_once('#') {
            found.push((number, comment));
        }
        is_inside ^= quotes % 2 == 1;
    }
    found
}

fn rust(file: &SourceFile, found: &mut Vec<ProseLine>) {
    for (at, line) in file.text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = trimmed
            .strip_prefix("///")
            .or_else(|| trimmed.strip_prefix("//!"))
            .or_else(|| trimmed.strip_prefix("//"));
        if let Some(text) = comment {
            push(file, at + 1, text, found);
        }
    }
    let tokens: TokenStream = file.text.parse().unwrap_or_default();
    literals(file, tokens, found);
}

fn literals(file: &SourceFile, tokens: TokenStream, found: &mut Vec<ProseLine>) {
    let mut is_doc = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => literals(file, group.stream(), found),
            TokenTree::Literal(literal) if !is_doc => {
                let text = literal.to_string();
                // A text of several words: an error, a log line, a help text.
                if text.starts_with(['"', 'r']) && text.contains(' ') {
                    push(file, literal.span().start().line, &text, found);
                }
            }
            // A doc comment is an attribute here; its text was read as a line.
            TokenTree::Ident(name) => {
                is_doc = name == "doc";
                continue;
            }
            TokenTree::Punct(_) => continue,
            TokenTree::Literal(_) => {}
        }
        is_doc = false;
    }
}

fn push(file: &SourceFile, line: usize, text: &str, found: &mut Vec<ProseLine>) {
    // Text between backticks is code.
    let plain: Vec<_> = text.split('`').step_by(2).collect();
    found.push(ProseLine {
        file: file.path.clone(),
        line,
        text: plain.join(" "),
    });
}
