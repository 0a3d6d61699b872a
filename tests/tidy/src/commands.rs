//! Code blocks of pages, and the calls of `conductor` in their shell blocks.

use std::iter::Peekable;
use std::str::Chars;

use crate::{SourceFile, files};

/// Beginning of the comment before a shell block that no reader can run as it stands.
const NOT_RUN: &str = "<!-- not run: ";

/// Languages of shell blocks.
const SHELLS: [&str; 3] = ["sh", "bash", "console"];

/// Fenced code block of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeBlock {
    /// Line number of the opening fence, from 1.
    pub line: usize,
    /// Language behind the fence; empty if there is none.
    pub language: String,
    /// Lines between the fences.
    pub text: String,
    /// Reason why its commands are not run, from the comment in the line before.
    pub reason: Option<String>,
}

impl CodeBlock {
    /// Returns whether its lines are commands of a shell.
    #[must_use]
    pub fn is_shell(&self) -> bool {
        SHELLS.contains(&&*self.language)
    }
}

/// Call of `conductor` on a page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageCall {
    /// Line number of the call, or of its fence, from 1.
    pub line: usize,
    /// Its words, `conductor` first.
    pub words: Vec<String>,
}

/// Returns the pages whose commands a new reader types.
#[must_use]
pub fn guides() -> Vec<SourceFile> {
    let is_guide =
        |file: &SourceFile| file.path == "README.md" || file.path.starts_with("host/docs/tutorials/");
    files(&["md"]).into_iter().filter(is_guide).collect()
}

/// Returns the fenced code blocks of a page.
#[must_use]
pub fn code_blocks(text: &str) -> Vec<CodeBlock> {
    let mut found: Vec<CodeBlock> = Vec::new();
    let (mut is_open, mut previous) = (false, "");
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), found.last_mut()) {
            (Some(_), Some(_)) if is_open => is_open = false,
            (Some(language), _) => {
                is_open = true;
                found.push(CodeBlock {
                    line: at + 1,
                    language: language.trim().to_owned(),
                    text: String::new(),
                    reason: reason(previous),
                });
            }
            (None, Some(block)) if is_open => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, _) => {}
        }
        previous = line;
    }
    found
}

/// Returns the calls of `conductor` on a page: in its shell fences, and in the lines of its indented blocks.
#[must_use]
pub fn calls_of_page(text: &str) -> Vec<PageCall> {
    let fences = code_blocks(text).into_iter().filter(CodeBlock::is_shell);
    let scripts = fences.map(|block| (block.line, block.text));
    let calls = scripts.chain(indented_commands(text)).flat_map(|(line, script)| {
        let calls = conductor_calls(&script).into_iter();
        calls.map(move |words| PageCall { line, words })
    });
    calls.collect()
}

/// Returns each line of the indented blocks with its number, joined with the next where it ends in a backslash.
///
/// Such a block has no language: it may be a configuration or an output, whose quotes need not be closed.
fn indented_commands(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_fenced, mut is_continued, mut is_block) = (false, false, true);
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_indented = line.starts_with("    ") && !is_fenced && !is_fence;
        // Without an empty line before, an indented line continues a paragraph or an item.
        is_block = line.trim().is_empty() || (is_indented && is_block);
        if is_indented && is_block && !line.trim().is_empty() {
            match found.last_mut() {
                Some((_, whole)) if is_continued => *whole = format!("{whole}\n{line}"),
                _ => found.push((at + 1, line.to_owned())),
            }
            is_continued = line.ends_with('\\');
        } else {
            is_continued = false;
        }
    }
    found
}

fn reason(line: &str) -> Option<String> {
    let reason = line.strip_prefix(NOT_RUN)?.strip_suffix("-->")?.trim();
    (!reason.is_empty()).then(|| reason.to_owned())
}

/// Returns the words of each call of `conductor` in a shell script, `conductor` first.
///
/// A prompt, `do`, `sudo`, variables before the command and redirections are left out. Substitutions are not expanded.
#[must_use]
pub fn conductor_calls(script: &str) -> Vec<Vec<String>> {
    let calls = commands(script).into_iter().filter_map(|words| {
        let mut words: Vec<String> = words.into_iter().skip_while(is_before_command).collect();
        let program = words.first_mut()?;
        if program.rsplit('/').next() != Some("conductor") {
            return None;
        }
        "conductor".clone_into(program);
        Some(words)
    });
    calls.collect()
}

fn is_before_command(word: &String) -> bool {
    ["$", "do", "sudo"].contains(&&**word) || word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Splits a script into its simple commands, and each into its words.
fn commands(script: &str) -> Vec<Vec<String>> {
    let (mut found, mut words) = (Vec::new(), Vec::new());
    let mut rest = script.chars().peekable();
    while let Some(&next) = rest.peek() {
        match next {
            '\n' | ';' | '|' | '&' => {
                rest.next();
                found.push(std::mem::take(&mut words));
            }
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            '>' | '<' => skip_redirection(&mut rest),
            c if c.is_whitespace() => {
                rest.next();
            }
            _ => words.extend(word(&mut rest)),
        }
    }
    found.push(words);
    found.retain(|words| !words.is_empty());
    found
}

fn skip_redirection(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| ['>', '<', '&', ' '].contains(c)).is_some() {}
    word(rest);
}

/// Takes one word, without its quotes. A backslash at the end of a line joins it with the next; `None` if nothing else
/// was there.
fn word(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let (mut text, mut quote, mut is_word) = (String::new(), None, false);
    while let Some(&next) = rest.peek() {
        let ends = next.is_whitespace() || [';', '|', '&', '>', '<'].contains(&next);
        if quote.is_none() && ends {
            break;
        }
        rest.next();
        match (quote, next) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(next), true),
            (None | Some('"'), '\\') => {
                if let Some(escaped) = rest.next().filter(|c| *c != '\n') {
                    text.push(escaped);
                    is_word = true;
                }
            }
            _ => {
                text.push(next);
                is_word = true;
            }
        }
    }
    is_word.then_some(text)
}
