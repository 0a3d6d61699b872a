//! The page: `ui/index.html` with the addresses of this release's files.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::Response;

use crate::{assets, files, headers};

const TEMPLATE: &str = include_str!("../ui/index.html");

static PAGE: LazyLock<String> = LazyLock::new(|| render(&assets::base()));

/// Returns the page. It is fetched each time: its addresses change with a release.
pub(crate) fn response() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE.as_str()));
    headers::add(response.headers_mut(), "text/html; charset=utf-8", "no-cache");
    response
}

/// Fills in the template. Every module is announced, so that a browser fetches them all at once instead of import by
/// import.
fn render(base: &str) -> String {
    let scripts = files::FILES.iter().filter(|file| file.path.ends_with(".js"));
    let preload = scripts.fold(String::new(), |mut links, file| {
        let _ = writeln!(
            links,
            "<link rel=\"modulepreload\" href=\"{base}/{}\">",
            file.path
        );
        links
    });
    TEMPLATE
        .replace("{{preload}}", preload.trim_end())
        .replace("{{assets}}", base)
}
