//! Explanation of a decision: the page of a request, and `conductor explain`, which shows it.

mod page;
mod pipeline;
mod text;

use anyhow::Result;
use http::Method;

pub use self::page::ExplainPage;
pub(crate) use self::page::{CandidatePage, candidates, version_id};
use crate::args::ExplainArgs;
use crate::{Exit, remote};

/// Path of the admin pages that explain requests, without the request's id.
pub const PAGE: &str = "/admin/explain/";

/// Runs `conductor explain`: queries a router and prints the explanation.
///
/// # Errors
/// If the router cannot be queried, or does not know the request.
pub fn run(args: &ExplainArgs) -> Result<Exit> {
    let path = format!("{PAGE}{}", remote::in_a_path(&args.request));
    let answer = remote::ask(&args.router, Method::GET, &path)?;
    let page: ExplainPage = serde_json::from_value(answer.clone())?;
    remote::print(&args.router, &answer, &page.to_string())
}
