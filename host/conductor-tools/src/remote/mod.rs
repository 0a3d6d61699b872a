//! `conductor policy status`, `rollback` and `resume`: the admin pages of a running router, from its command line.

pub(crate) mod deploy;

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, InvalidHeaderValue};
use http::uri::{Parts, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;
use thiserror::Error;
use worker_client::{WorkerClient, WorkerClientError};

use crate::Exit;
use crate::args::{ChangePolicyArgs, RouterArgs, StatusArgs};
use crate::print;
use local_files::ADMIN_API_KEY;

/// Timeout of one answer: a resumed policy may have to be compiled, which takes seconds for an interpreter.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest answer, in bytes.
const LONGEST: usize = 16 << 20;

/// Failure to reach the router, or its refusal.
#[derive(Debug, Error)]
pub(crate) enum RemoteError {
    /// The router is not reachable.
    #[error("failed to query the router at `{url}` (`--admin` names its admin listener)")]
    Request {
        url: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("failed to query the router at `{0}` within {PATIENCE:?}")]
    Timeout(String),
    #[error("failed to send the key of the environment variable `{ADMIN_API_KEY}`: no header can carry it")]
    Key(#[source] InvalidHeaderValue),
    /// The router refuses.
    #[error("the router refused: {message} ({status})")]
    Refused { status: StatusCode, message: String },
    #[error("failed to understand the answer of `{url}`")]
    Answer {
        url: String,
        #[source]
        source: serde_json::Error,
    },
}

/// Shows the policies of a router.
pub(crate) fn status(args: &StatusArgs) -> Result<Exit> {
    let mut page = ask(&args.router, Method::GET, "/admin/policies")?;
    if let (Some(name), Some(policies)) = (&args.name, page["policies"].as_array_mut()) {
        policies.retain(|policy| policy["name"] == name.as_str());
        if policies.is_empty() {
            anyhow::bail!("the router has no policy `{name}`");
        }
    }
    let policies = page["policies"].as_array().into_iter().flatten();
    let text: Vec<String> = policies.map(|policy| show(policy, unix_ms())).collect();
    print(&args.router, &page, &text.join("\n"))
}

/// Rolls a policy of a router back to the version before.
pub(crate) fn roll_back(args: &ChangePolicyArgs) -> Result<Exit> {
    change(args, "rollback")
}

/// Makes a router load a policy's file again.
pub(crate) fn resume(args: &ChangePolicyArgs) -> Result<Exit> {
    change(args, "resume")
}

fn change(args: &ChangePolicyArgs, action: &str) -> Result<Exit> {
    let path = format!("/admin/policies/{}/{action}", in_a_path(&args.name));
    let policy = ask(&args.router, Method::POST, &path)?;
    print(&args.router, &policy, &show(&policy, unix_ms()))
}

pub(crate) fn print(args: &RouterArgs, page: &Value, text: &str) -> Result<Exit> {
    print::print(page, text, args.json)?;
    Ok(Exit::Success)
}

/// Escapes a text for the path of a URL (RFC 3986, section 2.3).
pub(crate) fn in_a_path(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

/// Requests a page of the router, and makes it fit for a terminal. Clients choose ids and models, and may put control
/// sequences into them.
pub(crate) fn ask(args: &RouterArgs, method: Method, path: &str) -> Result<Value> {
    request(args, method, path, Bytes::new()).map(printable)
}

/// Sends a body to the page, and returns the answer.
pub(crate) fn ask_with(args: &RouterArgs, method: Method, path: &str, body: &Value) -> Result<Value> {
    request(args, method, path, body.to_string().into()).map(printable)
}

/// Returns the page with every control character spelt out.
fn printable(page: Value) -> Value {
    match page {
        Value::String(text) if text.contains(char::is_control) => {
            let spelt = |character: char| match character.is_control() {
                true => character.escape_default().to_string(),
                false => character.into(),
            };
            Value::String(text.chars().map(spelt).collect())
        }
        Value::Array(items) => items.into_iter().map(printable).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name, printable(member)))
            .collect(),
        plain => plain,
    }
}

fn request(args: &RouterArgs, method: Method, path: &str, body: Bytes) -> Result<Value> {
    let key = std::env::var(ADMIN_API_KEY)
        .ok()
        .filter(|key| !key.trim().is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(send(&args.admin, method, path, key, body))?)
}

async fn send(
    admin: &str,
    method: Method,
    path: &str,
    key: Option<String>,
    body: Bytes,
) -> Result<Value, RemoteError> {
    let url = format!("{}{path}", admin.trim_end_matches('/'));
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| RemoteError::Request {
        url: url.clone(),
        source,
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        let mut key = HeaderValue::from_str(key.trim()).map_err(RemoteError::Key)?;
        key.set_sensitive(true);
        headers.insert("x-api-key", key);
    }
    let (server, target) = split_url(&url).map_err(|error| failed(error.into()))?;
    let client = WorkerClient::of_server(&server, PATIENCE).map_err(|error| failed(error.into()))?;
    let client = client.with_max_response(LONGEST);
    let reply = client.send(method, &target, headers, body).await;
    let reply = reply.map_err(|error| match error {
        WorkerClientError::Timeout { .. } => RemoteError::Timeout(url.clone()),
        WorkerClientError::Forward { source, .. } | WorkerClientError::Body { source, .. } => failed(source),
        error @ WorkerClientError::Path(_) => failed(error.into()),
    })?;
    let (status, body) = (reply.status, reply.body);
    if !status.is_success() {
        let page: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = page["error"]["message"]
            .as_str()
            .unwrap_or("it reports no details")
            .to_owned();
        return Err(RemoteError::Refused { status, message });
    }
    serde_json::from_slice(&body).map_err(|source| RemoteError::Answer {
        url: url.clone(),
        source,
    })
}

/// Splits a URL into its server, `http://host:port`, and its path with the query.
fn split_url(url: &str) -> Result<(String, String), http::Error> {
    let mut parts: Parts = url.parse::<Uri>()?.into_parts();
    let target = parts.path_and_query.replace(PathAndQuery::from_static("/"));
    let server = Uri::from_parts(parts)?.to_string();
    Ok((
        server,
        target.map_or_else(String::new, |target| target.to_string()),
    ))
}

/// Formats a policy for people.
fn show(policy: &Value, now_ms: u64) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut shown = format!("{}  ({})\n", text(&policy["name"]), text(&policy["source"]));
    let versions = policy["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for version in versions {
        let circuit = &version["circuit"];
        let state = match version["state"].as_str() {
            Some("active") => "active",
            Some("held-back") => "held back",
            _ => "before",
        };
        let since = version["since_unix_ms"]
            .as_u64()
            .map_or(0, |since| now_ms.saturating_sub(since) / 1000);
        let _ = writeln!(
            shown,
            "  {state:<9}  {:<19}  {}; since {}; {} calls, {}; circuit {} ({} openings); 256 candidates in {} us",
            text(&version["id"]),
            text(&version["manifest"]),
            age(since),
            version["calls"],
            faults(&version["faults"]),
            text(&circuit["state"]),
            circuit["openings"],
            version["load"]["decided_256_us"],
        );
    }
    if policy["pipeline"].is_object() {
        shown += &show_parts(policy);
    } else if versions.is_empty() {
        shown.push_str("  no version ever worked\n");
    }
    if let Some(events) = policy["events"].as_object() {
        let _ = writeln!(
            shown,
            "  events: {} delivered, {} dropped, {}; circuit {}",
            events["delivered"],
            events["dropped"],
            faults(&events["faults"]),
            text(&events["circuit"]),
        );
    }
    if let Some(kept) = policy["rollback_kept"].as_bool() {
        let until = match kept {
            true => "over a restart too",
            false => "until the router ends; set `policy-state` of [server] to keep it over a restart",
        };
        let _ = writeln!(shown, "  rolled back: {until}");
    }
    if policy["decides"] != policy["version"] {
        let _ = writeln!(shown, "  decides now: {}", text(&policy["decides"]));
    }
    if let Some(problem) = policy["problem"].as_str() {
        let _ = writeln!(shown, "  problem: {problem}");
    }
    shown
}

/// Formats the parts of a pipeline.
fn show_parts(policy: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let pipeline = &policy["pipeline"];
    let list = |name: &str| pipeline[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let at = match &pipeline["temperature"] {
        Value::Null => String::new(),
        temperature => format!(" at {temperature}"),
    };
    let (version, calls, pick) = (
        text(&policy["version"]),
        &policy["calls"],
        text(&pipeline["pick"]),
    );
    let mut shown = format!("  active     {version}; {calls} calls; pick {pick}{at}\n");
    for filter in list("filters") {
        let strict = if filter["strict"] == true { ", strict" } else { "" };
        let _ = writeln!(shown, "  filter     {}{strict}", text(&filter["keeps"]));
    }
    for scorer in list("scorers") {
        let weight = &scorer["weight"];
        let _ = match scorer["policy"].as_str() {
            Some(policy) => writeln!(
                shown,
                "  scorer     {policy} x {weight}, calls {}",
                text(&scorer["version"])
            ),
            None => writeln!(shown, "  column     {} x {weight}", text(&scorer["feature"])),
        };
    }
    shown
}

fn faults(faults: &Value) -> String {
    let kinds = faults.as_object().into_iter().flatten();
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    match kinds.is_empty() {
        true => "no fault".to_owned(),
        false => kinds.join(", "),
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_shown_with_its_versions_and_who_decides() {
        let version = |id: &str, state: &str, circuit: &str, faults: Value| {
            json!({
                "id": id, "state": state, "manifest": "mine 1.0", "since_unix_ms": 1_000, "calls": 7, "faults": faults,
                "circuit": { "state": circuit, "openings": 1 }, "load": { "decided_256_us": 12.5 },
            })
        };
        let policy = json!({
            "name": "mine", "source": "policies.d/mine.wasm", "version": "bb", "decides": "aa", "problem": "failed to load it",
            "events": { "delivered": 9, "dropped": 1, "faults": { "trap": 1 }, "circuit": "closed" },
            "versions": [
                version("bb", "active", "open", json!({ "trap": 5 })), version("aa", "before", "closed", json!({})),
            ],
        });
        let expected = "mine  (policies.d/mine.wasm)\n  \
            active     bb                   mine 1.0; since 3 min; 7 calls, 5 trap; circuit open (1 openings); 256 candidates in 12.5 us\n  \
            before     aa                   mine 1.0; since 3 min; 7 calls, no fault; circuit closed (1 openings); 256 candidates in 12.5 us\n  \
            events: 9 delivered, 1 dropped, 1 trap; circuit closed\n  decides now: aa\n  problem: failed to load it\n";
        assert_eq!(show(&policy, 200_000), expected);
    }

    #[test]
    fn a_pipeline_is_shown_with_its_parts() {
        let policy = json!({
            "name": "mixed", "source": "pipeline", "version": "cc", "decides": "cc", "calls": 7, "versions": [],
            "pipeline": {
                "filters": [{ "keeps": "label zone is eu", "strict": true }],
                "scorers": [
                    { "policy": "tier-weight", "weight": 2.0, "version": "aa" }, { "feature": "load.requests", "weight": -1.0 },
                ],
                "pick": "softmax", "temperature": 0.1,
            },
        });
        let expected = "mixed  (pipeline)\n  active     cc; 7 calls; pick softmax at 0.1\n  \
            filter     label zone is eu, strict\n  scorer     tier-weight x 2.0, calls aa\n  column     load.requests x -1.0\n";
        assert_eq!(show(&policy, 0), expected);
    }

    #[test]
    fn a_url_is_split_behind_its_port() {
        let (server, target) = split_url("http://127.0.0.1:9/base/admin?x=1").unwrap();
        assert_eq!((&*server, &*target), ("http://127.0.0.1:9/", "/base/admin?x=1"));
        assert!(split_url("127.0.0.1 9").is_err());
    }

    #[test]
    fn an_id_of_any_characters_is_one_part_of_a_path() {
        assert_eq!(in_a_path("req-1._~"), "req-1._~");
        assert_eq!(in_a_path("a/b?ä"), "a%2Fb%3F%C3%A4");
    }

    #[test]
    fn a_page_cannot_make_a_terminal_obey() {
        let page = json!({ "model": ["m\u{1b}[31m\nfake"], "plain": "caf\u{e9}" });
        let expected = json!({ "model": ["m\\u{1b}[31m\\nfake"], "plain": "caf\u{e9}" });
        assert_eq!(printable(page), expected);
    }
}
