//! Explanation of a decision: the page of a request, and `conductor explain`, which shows it.

mod page;
mod pipeline;
mod text;

use anyhow::Result;
use operator_tools::admin::{RouterSet, in_a_path};
use operator_tools::commands::newest_request;

pub use self::page::ExplainPage;
pub(crate) use self::page::{CandidatePage, candidates, version_id};
use crate::Exit;
use crate::args::ExplainArgs;

/// Path of the admin pages that explain requests, without the request's id.
pub const PAGE: &str = "/admin/explain/";

/// Runs `conductor explain`: queries a router and prints the explanation.
///
/// # Errors
/// If the router cannot be queried, or does not know the request.
pub fn run(args: &ExplainArgs) -> Result<Exit> {
    let request = match &args.request {
        Some(request) => request.clone(),
        None => newest_request(&args.router)?,
    };
    let path = format!("{PAGE}{}", in_a_path(&request));
    let routers = RouterSet::of(&args.router)?;
    let mut answers = routers.every(|client| client.get(&path));
    if routers.is_several() && answers.iter().any(|answer| answer.page.is_ok()) {
        // A request has one router; the others do not know it.
        answers.retain(|answer| answer.page.is_ok());
    }
    let pages = answers.iter().filter_map(|answer| answer.page.as_ref().ok());
    let pages = pages.map(|page| serde_json::from_value::<ExplainPage>(page.clone()));
    let texts: Result<Vec<String>, _> = pages.map(|page| page.map(|page| page.to_string())).collect();
    routers.print(&answers, &texts?.join("\n"))
}
