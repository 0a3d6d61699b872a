//! `conductor policy status`, `rollback`, `resume`, `promote` and `retract`: the policies of running routers.

use std::fmt::Write as _;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Value, json};

use super::fleet_table::short;
use crate::Exit;
use crate::admin::{RemoteError, RouterAnswer, RouterSet, in_a_path};
use crate::args::{ChangePolicyArgs, PromoteArgs, RouterArgs, StatusArgs};
use crate::units::age;

/// Change of a policy that was sent to routers.
#[derive(Debug)]
pub struct PolicyChanged {
    /// Exit of the command.
    pub exit: Exit,
    /// Set where every router refused, and none changed.
    pub is_refused: bool,
}

/// Shows the policies of routers.
///
/// # Errors
/// If a router has no policy of that name, or the output cannot be written.
pub fn status(args: &StatusArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.router)?;
    let mut answers = routers.every(|client| client.get("/admin/policies"));
    if let Some(name) = &args.name {
        for answer in &mut answers {
            let Ok(page) = &mut answer.page else { continue };
            if let Some(policies) = page["policies"].as_array_mut() {
                policies.retain(|policy| policy["name"] == name.as_str());
                if policies.is_empty() {
                    anyhow::bail!("the router at `{}` has no policy `{name}`", answer.router);
                }
            }
        }
    }
    let text = of_each(&routers, &answers, |page| {
        let policies = page["policies"].as_array().into_iter().flatten();
        let text: Vec<String> = policies.map(|policy| show(policy, unix_ms())).collect();
        text.join("\n")
    });
    routers.print(&answers, &text)
}

/// Rolls a policy back to the version before.
///
/// # Errors
/// If an address of a router or its key is unusable.
pub fn roll_back(args: &ChangePolicyArgs) -> Result<Exit> {
    let changed = change(&args.router, &args.name, "rollback", None, |page| {
        show(page, unix_ms())
    })?;
    Ok(changed.exit)
}

/// Makes routers load a policy's file again.
///
/// # Errors
/// If an address of a router or its key is unusable.
pub fn resume(args: &ChangePolicyArgs) -> Result<Exit> {
    let changed = change(&args.router, &args.name, "resume", None, |page| {
        show(page, unix_ms())
    })?;
    Ok(changed.exit)
}

/// Makes a candidate the policy of its route.
///
/// # Errors
/// If an address of a router or its key is unusable.
pub fn promote(args: &PromoteArgs) -> Result<Exit> {
    let body = json!({ "route": args.route });
    let changed = change(&args.router, &args.name, "promote", Some(&body), show_override)?;
    Ok(changed.exit)
}

/// Ends what was done with a policy over HTTP.
///
/// # Errors
/// If an address of a router or its key is unusable.
pub fn retract(args: &PromoteArgs) -> Result<Exit> {
    let body = json!({ "route": args.route });
    let changed = change(&args.router, &args.name, "retract", Some(&body), show_override)?;
    Ok(changed.exit)
}

/// Runs a policy as a shadow or a canary: `action` with its body.
///
/// # Errors
/// If an address of a router or its key is unusable.
pub fn begin_trial(args: &RouterArgs, name: &str, action: &str, body: &Value) -> Result<PolicyChanged> {
    change(args, name, action, Some(body), show_override)
}

fn change(
    args: &RouterArgs,
    name: &str,
    action: &str,
    body: Option<&Value>,
    show: impl Fn(&Value) -> String,
) -> Result<PolicyChanged> {
    let routers = RouterSet::of(args)?;
    let path = format!("/admin/policies/{}/{action}", in_a_path(name));
    let path = &path;
    let answers = routers.every(|client| async move { client.post(path, body).await });
    let text = of_each(&routers, &answers, show);
    // The changes stay made if the output cannot be written.
    let exit = routers.print(&answers, &text).unwrap_or_else(|error| {
        eprintln!("conductor: {error:#}");
        Exit::Failure
    });
    Ok(PolicyChanged {
        is_refused: answers.iter().all(has_no_effect),
        exit,
    })
}

/// Returns whether a router refused a change, and nothing was changed: a proxy before it may have failed while the
/// change goes on, and its fleet may have changed without it.
fn has_no_effect(answer: &RouterAnswer) -> bool {
    match &answer.page {
        Err(RemoteError::Refused { status, page, .. }) => {
            status.is_client_error() && page["error"]["code"] != "fleet_changed"
        }
        _ => false,
    }
}

/// Returns the text of each page, under the address of its router if there are several.
fn of_each(routers: &RouterSet, answers: &[RouterAnswer], show: impl Fn(&Value) -> String) -> String {
    let text = |answer: &RouterAnswer| {
        let text = show(answer.page.as_ref().ok()?);
        Some(match routers.is_several() {
            true => format!("{}\n{text}", short(&answer.router)),
            false => text,
        })
    };
    let texts: Vec<String> = answers.iter().filter_map(text).collect();
    texts.join("\n")
}

fn show_override(answer: &Value) -> String {
    let mut shown = format!("{}\n", answer["message"].as_str().unwrap_or("done"));
    let overrides = answer["overrides"].as_array().into_iter().flatten();
    let route = &answer["route"];
    for lines in overrides.filter(|shown| shown["route"] == *route) {
        let toml = lines["toml"].as_str().unwrap_or_default();
        shown += &format!("write this into route {route} of the configuration file:\n");
        shown.extend(toml.lines().map(|line| format!("    {line}\n")));
        if lines["kept"] == false {
            shown += "until then it is lost when the router ends: without `policy-state` of [server] it is not saved\n";
        }
    }
    shown
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

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_without_an_effect_is_refused_by_the_router_itself_and_not_made_by_its_fleet() {
        let refused = |status: StatusCode, code: &str| {
            let page = Err(RemoteError::Refused {
                router: "http://a:1".to_owned(),
                status,
                message: String::new(),
                page: Box::new(json!({ "error": { "code": code } })),
            });
            has_no_effect(&RouterAnswer {
                router: "http://a:1".to_owned(),
                page,
            })
        };
        assert!(refused(StatusCode::CONFLICT, "fleet_not_ready"));
        assert!(refused(StatusCode::UNAUTHORIZED, ""));
        assert!(!refused(StatusCode::CONFLICT, "fleet_changed"));
        assert!(!refused(StatusCode::GATEWAY_TIMEOUT, ""));
    }

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
}
