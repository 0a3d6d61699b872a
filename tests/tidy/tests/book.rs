//! The book: every page is in its table of contents, guides show commands that a test can read, and the tables of
//! migration name keys that exist.

use std::collections::BTreeSet;
use std::fs;

use tidy::commands::{CodeBlock, PageCall, calls_of_page, code_blocks, conductor_calls, guides};
use tidy::paths::code_spans;
use tidy::{files, root};

const BOOK: &str = "host/docs/";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the file is there")
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let contents = read("host/docs/SUMMARY.md");
    let pages = files(&["md"]).into_iter().map(|page| page.path);
    let pages = pages.filter_map(|path| path.strip_prefix(BOOK).map(str::to_owned));
    let (mut absent, mut checked) = (Vec::new(), 0);
    for page in pages.filter(|page| page != "SUMMARY.md") {
        checked += 1;
        if !contents.contains(&format!("]({page})")) {
            absent.push(page);
        }
    }
    assert!(checked > 20, "{checked} pages were found");
    assert!(absent.is_empty(), "add to host/docs/SUMMARY.md: {absent:?}");
}

/// Returns the calls of curl that send a body to an engine's path.
fn posts_to_engines(text: &str) -> Vec<&str> {
    let calls = text.match_indices("curl ").map(|(at, _)| &text[at..]);
    let ends = ["\n\n", "```", "curl "];
    calls
        .map(|call| {
            let end = ends.iter().filter_map(|end| call[5..].find(end)).min();
            &call[..end.map_or(call.len(), |end| end + 5)]
        })
        .filter(|call| call.contains("/v1/") && call.contains(" -d "))
        .collect()
}

// Engines refuse curl's own content type, which is that of a form.
#[test]
fn documented_requests_have_the_content_type_that_engines_require() {
    let (mut checked, mut without) = (0, Vec::new());
    for page in files(&["md"]) {
        for call in posts_to_engines(&page.text) {
            checked += 1;
            if !call.to_lowercase().contains("content-type: application/json") {
                without.push(format!(
                    "{}: {}",
                    page.path,
                    call.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    assert!(checked >= 4, "{checked} requests were found");
    assert!(
        without.is_empty(),
        "add -H 'content-type: application/json': {without:#?}"
    );
}

/// Returns the shell blocks of a page whose commands no test reads, without a reason for it.
fn unread_shell_blocks(text: &str) -> Vec<String> {
    let blocks = code_blocks(text).into_iter();
    let is_unread = |block: &CodeBlock| {
        block.is_shell() && block.reason.is_none() && conductor_calls(&block.text).is_empty()
    };
    let mistake = |block: CodeBlock| {
        format!(
            "{}: call conductor, or write `<!-- not run: REASON -->` in the line before",
            block.line
        )
    };
    blocks.filter(is_unread).map(mistake).collect()
}

/// Returns the mistakes of a guide's code blocks.
fn mistakes(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in code_blocks(text) {
        let line = block.line;
        if block.language.is_empty() {
            found.push(format!("{line}: name the language"));
        }
    }
    found.extend(unread_shell_blocks(text));
    // An indented block has no language, so that no test would read it.
    let lines = tidy::prose::markdown_lines(text)
        .into_iter()
        .map(|(line, _)| line);
    let outside: BTreeSet<usize> = lines.collect();
    let fences = code_blocks(text).into_iter().flat_map(|block| {
        let end = block.line + block.text.lines().count() + 1;
        block.line..=end
    });
    let fenced: BTreeSet<usize> = fences.collect();
    for (at, _) in text.lines().enumerate() {
        if !outside.contains(&(at + 1)) && !fenced.contains(&(at + 1)) {
            found.push(format!("{}: use a fence with a language", at + 1));
        }
    }
    found
}

#[test]
fn every_shell_block_of_a_guide_calls_conductor_or_has_a_reason() {
    let (mut found, mut checked) = (Vec::new(), 0);
    for guide in guides() {
        checked += code_blocks(&guide.text).len();
        let of_guide = mistakes(&guide.text).into_iter();
        found.extend(of_guide.map(|mistake| format!("{}:{mistake}", guide.path)));
    }
    assert!(checked > 20, "{checked} code blocks were found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_shell_block_of_a_page_calls_conductor_or_has_a_reason() {
    let (mut found, mut checked) = (Vec::new(), 0);
    for page in files(&["md"]) {
        checked += code_blocks(&page.text)
            .iter()
            .filter(|block| block.is_shell())
            .count();
        let of_page = unread_shell_blocks(&page.text).into_iter();
        found.extend(of_page.map(|mistake| format!("{}:{mistake}", page.path)));
    }
    assert!(checked > 40, "{checked} shell blocks were found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_rule_of_shell_blocks_finds_each_mistake() {
    let page = "a\n\n```sh\nconductor check\n```\n\n```\nx\n```\n\n```sh\nls\n```\n\n<!-- not run: -->\n```sh\nls\n```\n\n    ls\n\n<!-- not run: lists -->\n```sh\nls\n```\n";
    let found = mistakes(page);
    let lines: Vec<&str> = found.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(lines, ["7", "11", "16", "20"], "{found:?}");
}

#[test]
fn calls_of_conductor_are_found_with_their_words() {
    let script = "ls # conductor no\nKEY=1 target/release/conductor simulate 'a={\"b\":0.5}' \\\n  --json > out.txt\n\
                  curl -d '{\"conductor\":\n1}' x | conductor check \"a b\"; echo conductor\n";
    assert_eq!(
        conductor_calls(script),
        [
            vec!["conductor", "simulate", "a={\"b\":0.5}", "--json"],
            vec!["conductor", "check", "a b"],
        ]
    );
}

#[test]
fn calls_of_conductor_are_found_in_indented_blocks_too() {
    let page = "# It's\n\n    sudo conductor check \\\n        --live\n    a = \"it's\n    $ conductor top\n\n\
                - an item\n    conductor no\n\n```sh\nconductor status\n```\n\n```toml\nconductor = 1\n```\n";
    let call = |line, words: &[&str]| PageCall {
        line,
        words: words.iter().copied().map(str::to_owned).collect(),
    };
    assert_eq!(
        calls_of_page(page),
        [
            call(11, &["conductor", "status"]),
            call(3, &["conductor", "check", "--live"]),
            call(6, &["conductor", "top"]),
        ]
    );
}

/// Returns the words of lower case, digits, `-` and `_` in a text.
fn key_words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    text.split(move |c| !is_part(c)).filter(|word| !word.is_empty())
}

#[test]
fn every_key_that_the_migration_page_names_exists() {
    let config = read("config/conductor.toml");
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for line in config.lines().map(str::trim) {
        if line == "#" || line.starts_with("# ") {
            // Of a sentence only the quoted values.
            known.extend(line.split('"').skip(1).step_by(2).flat_map(key_words));
        } else {
            known.extend(key_words(line));
        }
    }
    // Parameters of policies are on the policies' own pages.
    let pages = ["policies/README.md", "policies/cache-aware/README.md"].map(read);
    let spans = pages.iter().flat_map(|page| page.lines()).flat_map(code_spans);
    known.extend(spans.flat_map(key_words));
    let folders = fs::read_dir(root().join("policies")).expect("the policies are there");
    let names = folders.map(|folder| folder.expect("a readable folder").file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    known.extend(names.iter().map(String::as_str));
    let page = read("host/docs/migration.md");
    let (mut absent, mut checked) = (Vec::new(), 0);
    for (at, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [_, ours] = cells[..] else { continue };
        if ours.contains("`conductor ") || ours.starts_with("none") {
            continue;
        }
        for key in code_spans(ours)
            .filter(|span| !span.contains('/'))
            .flat_map(key_words)
        {
            checked += 1;
            if !known.contains(key) {
                absent.push(format!("{}: {key}", at + 1));
            }
        }
    }
    assert!(checked > 100, "{checked} keys were found");
    assert!(
        absent.is_empty(),
        "no such keys in config/conductor.toml: {absent:#?}"
    );
}
