//! Links between the project's pages lead to files that exist.

use std::path::Path;

use tidy::paths::{code_spans, missing_in_architecture, missing_in_comments, normal};
use tidy::{SourceFile, files, prose::markdown_lines, root};

/// Returns the targets of the links in a line of Markdown.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_link_of_a_page_leads_to_a_file_that_exists() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for page in files(&["md"]) {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (number, line) in markdown_lines(&page.text) {
            for link in targets(line).filter(|link| !link.contains("://") && !link.starts_with('#')) {
                let path = link.split('#').next().unwrap_or(link);
                checked += 1;
                if !root().join(normal(&folder.join(path))).exists() {
                    broken.push(format!("{}:{number}: {link}", page.path));
                }
            }
        }
    }
    assert!(checked > 100, "{checked} links were found");
    assert!(broken.is_empty(), "links to files that do not exist: {broken:#?}");
}

#[test]
fn every_source_path_that_a_page_names_exists() {
    let sources = files(&["rs", "md", "toml", "py", "sh", "wit"]);
    let mut gone = Vec::new();
    let mut checked = 0;
    for page in files(&["md"]) {
        if page.path == "CHANGELOG.md" {
            continue;
        }
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (number, line) in markdown_lines(&page.text) {
            for span in code_spans(line) {
                let is_path =
                    span.contains('/') && span.ends_with(".rs") && !span.contains([' ', '*', '{', '<']);
                if !is_path {
                    continue;
                }
                // `mine` is a project that the reader makes.
                let beside = root().join(normal(&folder.join(span)));
                if span.starts_with("mine/") || (span.starts_with("../") && beside.exists()) {
                    continue;
                }
                checked += 1;
                let suffix = format!("/{span}");
                if !sources
                    .iter()
                    .any(|file| format!("/{}", file.path).ends_with(&suffix))
                {
                    gone.push(format!("{}:{number}: {span}", page.path));
                }
            }
        }
    }
    assert!(checked > 20, "{checked} paths were found");
    assert!(gone.is_empty(), "these files do not exist: {gone:#?}");
}

#[test]
fn every_source_path_that_a_comment_names_exists() {
    let (mut missing, mut checked) = (Vec::new(), 0);
    for file in files(&["rs"]) {
        let (found, names) = missing_in_comments(&file);
        missing.extend(found);
        checked += names;
    }
    assert!(checked > 100, "{checked} paths were found");
    assert!(missing.is_empty(), "these files do not exist: {missing:#?}");
}

#[test]
fn every_source_path_that_the_architecture_page_names_exists() {
    let page = "host/ARCHITECTURE.md";
    let page = SourceFile {
        path: page.to_owned(),
        text: std::fs::read_to_string(root().join(page)).expect("the page is there"),
    };
    let (missing, checked) = missing_in_architecture(&page);
    assert!(checked > 50, "{checked} paths were found");
    assert!(missing.is_empty(), "these files do not exist: {missing:#?}");
}

#[test]
fn the_rule_of_source_paths_finds_a_path_that_does_not_exist() {
    let of = |path: &str, text: &str| SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let comment = "//! `links.rs`, `src/{paths,gone}.rs`, `tests/`, `/v1/`, `a::b`.\n/// `lost.rs`\nlet x = \"`code.rs`\";\n";
    let (missing, checked) = missing_in_comments(&of("tests/tidy/tests/links.rs", comment));
    assert_eq!(
        missing,
        [
            "tests/tidy/tests/links.rs:1: src/gone.rs",
            "tests/tidy/tests/links.rs:2: lost.rs"
        ]
    );
    assert_eq!(checked, 5);
    let page = "# A\n`tests/tidy/src/paths.rs`, `prose.rs`.\n\n# B\n`prose.rs`, `tidy/`\n";
    let (missing, checked) = missing_in_architecture(&of("page.md", page));
    assert_eq!(missing, ["page.md:5: prose.rs", "page.md:5: tidy/"]);
    assert_eq!(checked, 4);
}
