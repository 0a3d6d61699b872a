//! Dashboard: a web page that shows the admin pages and sends their changes.
//!
//! The page is `ui/index.html` with plain ES modules, without a build step. Every file is embedded into the program.
//! The page reads the JSON of the admin pages with the admin key in a header, so it needs neither cookies nor a
//! session. This crate serves files only: it holds no data of the router, and needs no access control.

mod assets;
mod files;
mod headers;
mod page;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use axum::routing::get;

/// Returns the page under `/ui`, and the files that it loads.
pub fn pages() -> Router {
    let page = || async { page() };
    Router::new()
        .route("/ui", get(page))
        .route("/ui/", get(page))
        // The page's own addresses, such as `/ui/requests/ID`: its script selects what to show.
        .route("/ui/{*path}", get(page))
        .route("/ui/assets/{release}/{*path}", get(assets::serve))
}

/// Returns the page itself, for `/`.
#[must_use]
pub fn page() -> Response<Body> {
    page::response()
}

/// Returns the number of embedded bytes.
#[must_use]
pub fn embedded_bytes() -> usize {
    files::embedded_bytes()
}
