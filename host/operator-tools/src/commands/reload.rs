//! `conductor reload`: routers read their configuration and policies again.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::fleet_table::{items, short};
use super::policy_problems;
use crate::admin::{AdminClient, RemoteError, RouterAnswer, RouterSet};
use crate::args::ReloadArgs;
use crate::units::text;
use crate::{Exit, print};

/// Runs `conductor reload`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn reload(args: &ReloadArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.router)?;
    let answers = routers.every(reload_one);
    let text: String = answers.iter().map(show).collect();
    if routers.is_json() {
        return routers.print(&answers, &text);
    }
    // A refusal is text too: it has the problems of the file.
    print::write(text)?;
    for answer in &answers {
        match &answer.page {
            Err(error) if !has_problems(error) => eprintln!("conductor: {error}"),
            _ => {}
        }
    }
    let is_failed = answers.iter().any(|answer| answer.page.is_err());
    Ok(if is_failed { Exit::Failure } else { Exit::Success })
}

/// Returns a router's outcome, with the problems of its policies.
async fn reload_one(client: &AdminClient) -> Result<Value, RemoteError> {
    let mut page = client.post("/admin/reload", None).await?;
    policy_problems::add(client, &mut page).await;
    Ok(page)
}

fn show(answer: &RouterAnswer) -> String {
    let router = short(&answer.router);
    match &answer.page {
        Ok(page) => format!("{router}: {}", outcome(page)),
        Err(RemoteError::Refused { message, page, .. }) if page["problems"].is_array() => {
            format!("{router}: {message}\n{}", problems(page))
        }
        Err(_) => String::new(),
    }
}

/// Returns whether a refusal has the problems of a file, which are text.
fn has_problems(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Refused { page, .. } if page["problems"].is_array())
}

fn outcome(page: &Value) -> String {
    let mut shown = format!("{}, generation {}\n", text(&page["outcome"]), page["generation"]);
    for (name, change) in page["changes"].as_object().into_iter().flatten() {
        let change = change_text(change);
        let _ = writeln!(shown, "  {}: {change}", name.replace('_', " "));
    }
    let awaited: Vec<String> = items(&page["awaits"]).map(text).collect();
    if !awaited.is_empty() {
        let _ = writeln!(
            shown,
            "  waits until these policies are compiled: {}",
            awaited.join(", ")
        );
    }
    let restart: Vec<String> = items(&page["needs_restart"]).map(text).collect();
    if !restart.is_empty() {
        let _ = writeln!(shown, "  needs a restart: {}", restart.join(", "));
    }
    shown + &policy_problems::lines(page)
}

/// Returns a change as text: a list of names, or names by what happened to them.
fn change_text(change: &Value) -> String {
    let parts: Vec<String> = match change {
        Value::Array(names) => names.iter().map(change_text).collect(),
        Value::Object(kinds) => {
            let kinds = kinds.iter();
            kinds
                .map(|(kind, names)| format!("{} {}", kind.replace('_', " "), change_text(names)))
                .collect()
        }
        other => vec![text(other)],
    };
    parts.join(", ")
}

fn problems(page: &Value) -> String {
    let source = text(&page["source"]);
    let line = |problem: &Value| {
        let help = problem["help"].as_str().map(|help| format!("; {help}"));
        format!(
            "  {}[{}]: {source}:{}:{}: {}{}\n",
            text(&problem["severity"]),
            text(&problem["code"]),
            problem["line"],
            problem["column"],
            text(&problem["message"]),
            help.unwrap_or_default(),
        )
    };
    items(&page["problems"]).map(line).collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use super::*;

    fn answer(page: Result<Value, RemoteError>) -> RouterAnswer {
        let router = "http://a:1".to_owned();
        RouterAnswer { router, page }
    }

    #[test]
    fn an_applied_reload_lists_the_changes_and_what_needs_a_restart() {
        let page = json!({
            "outcome": "applied", "generation": 4, "changes": { "pools_added": ["b"] }, "needs_restart": ["listen"],
        });
        let expected = "a:1: applied, generation 4\n  pools added: b\n  needs a restart: listen\n";
        assert_eq!(show(&answer(Ok(page))), expected);
    }

    #[test]
    fn changes_by_kind_are_listed_without_json() {
        let page = json!({
            "outcome": "applied", "generation": 4, "changes": { "clients": { "added": ["bob", "eve"], "removed": ["al"] } },
        });
        let expected = "a:1: applied, generation 4\n  clients: added bob, eve, removed al\n";
        assert_eq!(show(&answer(Ok(page))), expected);
    }

    #[test]
    fn a_refused_reload_lists_the_problems_with_their_places() {
        let page = json!({
            "source": "conductor.toml",
            "problems": [{
                "code": "unknown-key", "severity": "error", "line": 2, "column": 1, "message": "unknown key `listne`",
                "help": "did you mean `listen`?",
            }],
        });
        let refused = RemoteError::Refused {
            router: "http://a:1".to_owned(),
            status: StatusCode::UNPROCESSABLE_ENTITY,
            message: "the configuration is refused".to_owned(),
            page: Box::new(page),
        };
        let expected = "a:1: the configuration is refused\n  \
            error[unknown-key]: conductor.toml:2:1: unknown key `listne`; did you mean `listen`?\n";
        assert_eq!(show(&answer(Err(refused))), expected);
    }
}
