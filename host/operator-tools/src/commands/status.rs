//! `conductor status`: the fleet at a glance.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::fleet_table::{FleetTable, TableLook, errors_cell, items, pages, short};
use super::{policy_problems, watch};
use crate::Exit;
use crate::admin::{AdminClient, RemoteError};
use crate::args::FleetStatusArgs;
use crate::table::{Side, TableCell, Tone};
use crate::units::{UNKNOWN, number, percent, seconds, size, text};

/// Most workers out of service that are listed.
const MOST_LISTED: usize = 20;

/// Runs `conductor status`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn status(args: &FleetStatusArgs) -> Result<Exit> {
    watch::show(&args.router, &args.watch, page, |answers, look| {
        let shown: Vec<String> = pages(answers)
            .map(|(router, page)| show(router, page, look))
            .collect();
        shown.join("\n")
    })
}

/// Returns the page of the fleet, with problems of policies and the rates of the last second if the router has them.
async fn page(client: &AdminClient) -> Result<Value, RemoteError> {
    let mut page = client.get("/status").await?;
    policy_problems::add(client, &mut page).await;
    if let Ok(event) = fleet_event(client).await {
        page["ready"] = event["ready"].clone();
        page["rates"] = items(&event["pools"])
            .map(|pool| (text(&pool["name"]), pool["rates"].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    Ok(page)
}

/// Returns the first event of the live page, which has every pool and worker.
pub(super) async fn fleet_event(client: &AdminClient) -> Result<Value, RemoteError> {
    let mut stream = client.stream("/admin/stream?topics=fleet").await?;
    stream.next_of("fleet").await
}

fn show(router: &str, page: &Value, look: TableLook) -> String {
    // A section has one router.
    let look = TableLook {
        is_several: false,
        ..look
    };
    let mut shown = headline(router, page);
    let _ = write!(shown, "\n{}", pools(page, look));
    let _ = write!(shown, "\n{}", routes(page, look));
    let absent = out_of_service(page);
    if !absent.is_empty() {
        let _ = write!(shown, "\nout of service:\n{absent}");
    }
    for pool in items(&page["pools"]) {
        for warning in items(&pool["warnings"]) {
            let (message, fix) = (text(&warning["message"]), text(&warning["fix"]));
            let _ = writeln!(shown, "warning: pool {}: {message}; {fix}", text(&pool["name"]));
        }
    }
    shown + &policy_problems::lines(page)
}

fn headline(router: &str, page: &Value) -> String {
    let ready = match page["ready"].as_bool() {
        Some(true) => "ready",
        Some(false) => "not ready",
        None => "running",
    };
    let config = &page["config"];
    let validity = match config["valid"] == false {
        true => " (its newest text is refused: see /admin/config)",
        false => "",
    };
    let memory = &page["memory"];
    let resident = memory["resident_bytes"]
        .as_u64()
        .map(|bytes| size(bytes as usize));
    let stage = match memory["stage"].as_str() {
        None | Some("calm") => String::new(),
        Some(stage) => format!(" ({stage})"),
    };
    format!(
        "{}: {ready}, {}{validity}, generation {}, memory {}{stage}\n",
        short(router),
        text(&config["source"]),
        page["generation"],
        resident.unwrap_or_else(|| UNKNOWN.to_owned()),
    )
}

fn pools(page: &Value, look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(
        look,
        &[
            ("pool", Side::Left),
            ("workers", Side::Right),
            ("in flight", Side::Right),
            ("queued", Side::Right),
            ("requests/s", Side::Right),
            ("errors/s", Side::Right),
            ("tokens/s", Side::Right),
            ("first token", Side::Right),
            ("hit ratio", Side::Right),
        ],
    );
    for pool in items(&page["pools"]) {
        let workers: Vec<&Value> = items(&pool["workers"]).collect();
        let serving = workers.iter().filter(|worker| is_in_service(worker)).count();
        let tone = match serving {
            0 if workers.is_empty() => Tone::Plain,
            0 => Tone::Bad,
            serving if serving < workers.len() => Tone::Doubtful,
            _ => Tone::Good,
        };
        let in_flight: u64 = workers
            .iter()
            .filter_map(|worker| worker["load"]["requests"].as_u64())
            .sum();
        let rates = &page["rates"][text(&pool["name"])];
        table.add(
            "",
            vec![
                text(&pool["name"]).into(),
                TableCell::toned(format!("{serving}/{}", workers.len()), tone),
                in_flight.to_string().into(),
                number(&pool["queued"]).into(),
                number(&rates["requests_per_s"]).into(),
                errors_cell(rates),
                number(&rates["tokens_per_s"]).into(),
                seconds(&rates["ttft_s"]).into(),
                percent(&rates["hit_ratio"]).into(),
            ],
        );
    }
    table
}

fn is_in_service(worker: &Value) -> bool {
    matches!(worker["health"].as_str(), Some("ok" | "returning"))
}

fn routes(page: &Value, look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(
        look,
        &[
            ("route", Side::Right),
            ("pool", Side::Left),
            ("models", Side::Left),
            ("path", Side::Left),
            ("policy", Side::Left),
            ("canaries", Side::Left),
            ("shadows", Side::Left),
        ],
    );
    let list = |texts: Vec<String>| match texts.is_empty() {
        true => UNKNOWN.to_owned(),
        false => texts.join(", "),
    };
    for (number, route) in items(&page["routes"]).enumerate() {
        let canary = |canary: &Value| {
            let share = percent(&canary["share"]);
            format!("{} {share}", text(&canary["policy"]["name"]))
        };
        let models = items(&route["match"]["models"]).map(text).collect();
        table.add(
            "",
            vec![
                (number + 1).to_string().into(),
                text(&route["pool"]).into(),
                list(models).into(),
                text(&route["match"]["path"]).into(),
                policies(route).into(),
                list(items(&route["canaries"]).map(canary).collect()).into(),
                list(items(&route["shadows"]).map(text).collect()).into(),
            ],
        );
    }
    table
}

/// Returns the policies that decide a route's requests, with their versions.
fn policies(route: &Value) -> String {
    let named = |policy: &Value| match policy["version"].as_str() {
        Some(version) => {
            // A component's own version text begins with its name.
            let name = text(&policy["name"]);
            let version = version.strip_prefix(&*name).map_or(version, str::trim_start);
            format!("{name} ({version})")
        }
        None => text(&policy["name"]),
    };
    let (prefill, decode) = (&route["prefill_policy"], &route["decode_policy"]);
    match prefill.is_null() && decode.is_null() {
        true => named(&route["policy"]),
        false => format!("prefill {}, decode {}", named(prefill), named(decode)),
    }
}

/// Lists the workers that get no requests, with the reasons.
fn out_of_service(page: &Value) -> String {
    let members =
        items(&page["pools"]).flat_map(|pool| items(&pool["workers"]).map(move |worker| (pool, worker)));
    let absent: Vec<_> = members.filter(|(_, worker)| !is_in_service(worker)).collect();
    let line = |(pool, worker): &(&Value, &Value)| {
        let [pool, name] = [&pool["name"], &worker["name"]].map(text);
        let lasts = worker["health_for_s"].is_number();
        let lasts = lasts.then(|| format!(" for {}", seconds(&worker["health_for_s"])));
        let [state, reason] = [&worker["health"], &worker["health_reason"]].map(text);
        format!("  {pool}/{name} {state}{}: {reason}\n", lasts.unwrap_or_default())
    };
    let more = match absent.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        more => format!("  and {more} more: see `conductor workers`\n"),
    };
    let listed: String = absent.iter().take(MOST_LISTED).map(line).collect();
    listed + &more
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet() -> Value {
        json!({
            "generation": 3, "ready": true, "config": { "source": "conductor.toml", "valid": false },
            "memory": { "stage": "calm", "resident_bytes": 52_428_800 },
            "routes": [{
                "pool": "chat", "policy": { "name": "ttft-queue", "version": "ttft-queue 1.0.0" }, "prefill_policy": null,
                "decode_policy": null, "canaries": [{ "policy": { "name": "mine" }, "share": 0.05 }], "shadows": [],
                "match": { "models": ["llama"], "path": null, "headers": [] },
            }],
            "pools": [{
                "name": "chat", "queued": 2, "warnings": [{ "message": "no KV events", "fix": "set kv-events" }],
                "workers": [
                    { "name": "w0", "health": "ok", "load": { "requests": 3 } },
                    {
                        "name": "w1", "health": "ejected", "health_reason": "a request got no answer",
                        "health_for_s": 4.0, "load": { "requests": 0 },
                    },
                ],
            }],
            "rates": { "chat": {
                "requests_per_s": 12.5, "errors_per_s": 0, "tokens_per_s": 640, "ttft_s": 0.18, "hit_ratio": 0.62,
            } },
        })
    }

    #[test]
    fn the_status_has_pools_routes_problems_and_rates() {
        let shown = show("http://127.0.0.1:8081", &fleet(), TableLook::default());
        let expected = "\
127.0.0.1:8081: ready, conductor.toml (its newest text is refused: see /admin/config), generation 3, memory 50.0 MiB

pool  workers  in flight  queued  requests/s  errors/s  tokens/s  first token  hit ratio
chat      1/2          3       2        12.5         0       640       180 ms       62 %

route  pool  models  path  policy              canaries  shadows
    1  chat  llama   -     ttft-queue (1.0.0)  mine 5 %  -

out of service:
  chat/w1 ejected for 4.0 s: a request got no answer
warning: pool chat: no KV events; set kv-events
";
        assert_eq!(shown, expected, "{shown}");
    }

    #[test]
    fn a_state_of_unknown_duration_has_none() {
        let mut page = fleet();
        let worker = &mut page["pools"][0]["workers"][1];
        worker["health"] = json!("draining");
        worker["health_reason"] = json!("an operator drains it");
        worker["health_for_s"] = Value::Null;
        assert_eq!(
            out_of_service(&page),
            "  chat/w1 draining: an operator drains it\n"
        );
    }

    #[test]
    fn a_router_without_rates_is_shown_with_dashes() {
        let mut page = fleet();
        page["rates"] = Value::Null;
        let shown = show("http://a:1", &page, TableLook::default());
        assert!(
            shown.contains("chat      1/2          3       2           -"),
            "{shown}"
        );
    }
}
