//! Links between the project's pages lead to files that exist.

use std::path::{Component, Path, PathBuf};

use tidy::{files, prose::markdown_lines, root};

/// Returns the targets of the links in a line of Markdown.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns the path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
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

/// Returns the code spans of a line.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
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
