//! The files that the page loads, under an address that holds the hash of all of them.
//!
//! Modules import each other by relative paths, so one hash for the whole folder stands in the address. A release with
//! other bytes has other addresses, hence a browser may keep each file for good.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};

use crate::files::{FILES, File};
use crate::headers;

/// Characters of the hash in an address.
const HASH_LENGTH: usize = 16;

static RELEASE: LazyLock<String> = LazyLock::new(release);

/// Returns the address of the folder of files.
pub(crate) fn base() -> String {
    format!("/ui/assets/{}", *RELEASE)
}

/// Serves a file of this release.
pub(crate) async fn serve(
    Path((release, path)): Path<(String, String)>,
    request: HeaderMap,
) -> Response<Body> {
    let file = FILES.iter().find(|file| file.path == path);
    match file.filter(|_| release == *RELEASE) {
        // A page of an earlier release is open in some tab, or the address is wrong.
        None => refuse(
            StatusCode::NOT_FOUND,
            "there is no such file in this release of the dashboard: reload the page\n",
        ),
        Some(file) if file.is_packed && !accepts_gzip(&request) => refuse(
            StatusCode::NOT_ACCEPTABLE,
            "this file is served as gzip only: send Accept-Encoding: gzip\n",
        ),
        Some(file) => respond(file),
    }
}

fn respond(file: &File) -> Response<Body> {
    let mut response = Response::new(Body::from(file.bytes));
    let to = response.headers_mut();
    headers::add(to, content_type(file.path), "public, max-age=31536000, immutable");
    if file.is_packed {
        to.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        to.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

fn refuse(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    headers::add(response.headers_mut(), "text/plain; charset=utf-8", "no-store");
    response
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let mut codings = accepted.unwrap_or_default().split(',').map(str::trim);
    codings.any(|coding| coding == "gzip" || coding.starts_with("gzip;") && !coding.ends_with("q=0"))
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Returns the beginning of the hash of all paths and bytes.
fn release() -> String {
    let mut hash = Sha256::new();
    for file in FILES {
        hash.update(file.path);
        hash.update([0]);
        hash.update(file.bytes.len().to_le_bytes());
        hash.update(file.bytes);
    }
    let mut text = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    text.truncate(HASH_LENGTH);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_browser_that_accepts_gzip_gets_it() {
        let accepts = |text: &str| {
            let value = text.parse().expect("a header value");
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value)]))
        };
        assert!(accepts("gzip, deflate, br"));
        assert!(accepts("br, gzip;q=0.5"));
        assert!(!accepts("br, gzip;q=0"));
        assert!(!accepts("identity"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
