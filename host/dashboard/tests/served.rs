//! The page and its files as a browser gets them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::header::ACCEPT_ENCODING;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

/// Bytes that the program may grow by.
const MOST_BYTES: usize = 300 * 1024;

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

async fn get(path: &str, encoding: Option<&str>) -> Answer {
    let mut request = Request::get(path);
    if let Some(encoding) = encoding {
        request = request.header(ACCEPT_ENCODING, encoding);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = dashboard::pages().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

fn ui() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

/// Returns our own files below `ui` with one of these endings.
fn own_files(extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&ui(), extensions, &mut found);
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().unwrap() != "vendor" {
                collect(&path, extensions, found);
            }
        } else if extensions.contains(&path.extension().unwrap().to_str().unwrap()) {
            let name = path.strip_prefix(ui()).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(path).unwrap()));
        }
    }
}

/// Returns what stands between two texts, everywhere.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let parts = text.split(before).skip(1);
    parts.filter_map(|part| Some(part.split_once(after)?.0)).collect()
}

#[tokio::test]
async fn the_page_is_served_at_every_address_of_its_own() {
    let page = get("/ui", None).await;
    assert!(page.text().starts_with("<!doctype html>"));
    for path in ["/ui/", "/ui/fleet", "/ui/requests/a%2Fb", "/ui/policies?route=1"] {
        let answer = get(path, None).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(answer.body, page.body, "{path}");
    }
    let root = dashboard::page().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(root, page.body);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(page.header("cache-control"), "no-cache");
}

#[tokio::test]
async fn every_answer_has_a_strict_policy() {
    let script = script_path().await;
    for path in ["/ui", script.as_str(), "/ui/assets/0/main.js"] {
        let answer = get(path, None).await;
        let policy: BTreeSet<&str> = answer
            .header("content-security-policy")
            .split(';')
            .map(str::trim)
            .collect();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(directive), "{path}: {directive} of {policy:?}");
        }
        assert!(!answer.header("content-security-policy").contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin");
    }
}

async fn script_path() -> String {
    let page = get("/ui", None).await;
    let [script] = between(page.text(), "<script type=\"module\" src=\"", "\"")[..] else {
        panic!("one script: {}", page.text())
    };
    script.to_owned()
}

#[tokio::test]
async fn every_file_that_the_page_names_is_there_for_good() {
    let page = get("/ui", None).await;
    let mut named = between(page.text(), "href=\"/ui/assets/", "\"");
    named.extend(between(page.text(), "src=\"/ui/assets/", "\""));
    assert!(named.len() > 20, "{named:?}");
    for path in named {
        let answer = get(&format!("/ui/assets/{path}"), Some("gzip")).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(
            answer.header("cache-control"),
            "public, max-age=31536000, immutable"
        );
        assert!(
            !answer.header("content-type").starts_with("application/"),
            "{path}"
        );
        assert!(!answer.body.is_empty(), "{path}");
    }
    let script = script_path().await;
    assert!(script.ends_with("/main.js"), "{script}");
    assert_eq!(
        get("/ui/assets/0123456789abcdef/main.js", None).await.status,
        StatusCode::NOT_FOUND
    );
    let absent = script.replace("main.js", "no.js");
    assert_eq!(get(&absent, None).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_script_and_style_of_the_folder_is_served() {
    let base = script_path().await.replace("main.js", "");
    for (path, text) in own_files(&["js", "css", "svg"]) {
        let answer = get(&format!("{base}{path}"), None).await;
        assert_eq!(
            answer.status,
            StatusCode::OK,
            "{path}: add it to the list in src/files.rs"
        );
        assert_eq!(answer.text(), text, "{path}");
    }
}

#[tokio::test]
async fn every_import_names_a_file_that_is_served() {
    let base = script_path().await.replace("main.js", "");
    for (path, text) in own_files(&["js"]) {
        let folder = Path::new(&path).parent().unwrap();
        for import in between(&text, " from '", "'") {
            let target = clean(&folder.join(import));
            let answer = get(&format!("{base}{target}"), Some("gzip")).await;
            assert_eq!(answer.status, StatusCode::OK, "{path} imports {import}");
        }
    }
}

/// Resolves `.` and `..` of a path.
fn clean(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str().unwrap().split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[tokio::test]
async fn libraries_are_served_packed_only() {
    let path = script_path().await.replace("main.js", "vendor/uplot.js");
    let packed = get(&path, Some("gzip, deflate, br")).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert_eq!(packed.header("vary"), "accept-encoding");
    assert_eq!(packed.body, fs::read(ui().join("vendor/uplot.js.gz")).unwrap());
    let plain = get(&path, None).await;
    assert_eq!(plain.status, StatusCode::NOT_ACCEPTABLE);
    assert!(plain.text().contains("Accept-Encoding: gzip"));
}

#[test]
fn the_page_has_no_inline_script_or_style() {
    let page = fs::read_to_string(ui().join("index.html")).unwrap();
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("src=\"{{assets}}/main.js\"></script>"));
    for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
        assert!(!page.contains(inline), "{inline}");
    }
}

#[test]
fn no_script_makes_markup_or_code_from_text() {
    for (path, text) in own_files(&["js"]) {
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            " style=",
            "localStorage",
            "document.cookie",
        ] {
            assert!(!text.contains(forbidden), "{path}: {forbidden}");
        }
        let lines = text.lines().count();
        assert!(lines <= 300, "{path} has {lines} lines");
        assert!(
            text.starts_with("// "),
            "{path} begins with a comment that describes it"
        );
    }
}

#[test]
fn all_embedded_files_have_at_most_300_kib() {
    let bytes = dashboard::embedded_bytes();
    assert!((100_000..=MOST_BYTES).contains(&bytes), "{bytes} bytes");
}
