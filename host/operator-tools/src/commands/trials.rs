//! `conductor trials`: canaries compared with the policies of their routes, and shadows.

use anyhow::Result;
use serde_json::Value;

use super::fleet_table::{FleetTable, TableLook, items, pages};
use super::watch;
use crate::Exit;
use crate::admin::RouterAnswer;
use crate::args::PageArgs;
use crate::table::{Side, TableCell, Tone};
use crate::units::{UNKNOWN, millis, number, percent, text};

/// Runs `conductor trials`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn trials(args: &PageArgs) -> Result<Exit> {
    watch::show(
        &args.router,
        &args.watch,
        async |client| client.get("/admin/trials").await,
        |answers, look| {
            format!(
                "canaries\n{}\nshadows\n{}",
                arms(answers, look),
                shadows(answers, look)
            )
        },
    )
}

fn arms(answers: &[RouterAnswer], look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(
        look,
        &[
            ("route", Side::Right),
            ("pool", Side::Left),
            ("policy", Side::Left),
            ("version", Side::Left),
            ("share", Side::Right),
            ("state", Side::Left),
            ("requests", Side::Right),
            ("errors", Side::Right),
            ("first token p50", Side::Right),
            ("p95", Side::Right),
            ("cached", Side::Right),
            ("verdict", Side::Left),
        ],
    );
    for (router, page) in pages(answers) {
        for trial in items(&page["trials"]) {
            for arm in items(&trial["arms"]) {
                table.add(router, arm_row(trial, arm));
            }
        }
    }
    table
}

fn arm_row(trial: &Value, arm: &Value) -> Vec<TableCell> {
    let state = match arm["state"].as_str() {
        Some("stopped") => Tone::Bad,
        Some("running") => Tone::Good,
        _ => Tone::Plain,
    };
    vec![
        text(&trial["route"]).into(),
        text(&trial["pool"]).into(),
        text(&arm["policy"]).into(),
        text(&arm["version"]).into(),
        percent(&arm["share"]).into(),
        TableCell::toned(text(&arm["state"]), state),
        number(&arm["requests"]).into(),
        percent(&arm["error_share"]).into(),
        millis(&arm["ttft"]["p50_ms"]).into(),
        millis(&arm["ttft"]["p95_ms"]).into(),
        percent(&arm["cached_share"]).into(),
        verdict(arm).into(),
    ]
}

/// Returns the verdict on a canary: the reason of its stop, or the missing evidence.
fn verdict(arm: &Value) -> String {
    let stopped = &arm["stopped"];
    if stopped.is_object() {
        return match (stopped["reason"].as_str(), stopped["failures"].as_u64()) {
            // Only the other router has the evidence.
            (Some("agreed"), _) => format!("stopped by the router {}", text(&stopped["router"])),
            (_, Some(failures)) => format!("stopped: {failures} failures in a row"),
            (_, None) => format!("stopped: {} worse", text(&stopped["look"]["measure"])),
        };
    }
    let missing = missing_evidence(arm);
    match missing.is_empty() {
        true => text(&arm["verdict"]),
        false => format!("{}; waits for {}", text(&arm["verdict"]), missing.join("; ")),
    }
}

/// Returns the missing evidence of each arm of a comparison.
fn missing_evidence(arm: &Value) -> Vec<String> {
    let of_side = |name: &str, is_canary: bool| {
        let missing = items(&arm["waits_for"]);
        let missing = missing.filter(|missing| (missing["policy"] == arm["policy"]) == is_canary);
        let amounts: Vec<String> = missing
            .map(|missing| {
                let [measure, of] = [&missing["measure"], &missing["of"]].map(text);
                let [have, need] = [&missing["have"], &missing["need"]].map(number);
                format!("{measure} {have} of {need} {of}")
            })
            .collect();
        (!amounts.is_empty()).then(|| format!("{name}: {}", amounts.join(", ")))
    };
    [of_side("control", false), of_side("canary", true)]
        .into_iter()
        .flatten()
        .collect()
}

fn shadows(answers: &[RouterAnswer], look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(
        look,
        &[
            ("route", Side::Right),
            ("pool", Side::Left),
            ("policy", Side::Left),
            ("version", Side::Left),
            ("decisions", Side::Left),
            ("dropped", Side::Right),
            ("first token, predicted", Side::Right),
            ("active", Side::Right),
            ("decision", Side::Right),
        ],
    );
    for (router, page) in pages(answers) {
        for shadow in items(&page["shadows"]) {
            table.add(router, shadow_row(shadow));
        }
    }
    table
}

fn shadow_row(shadow: &Value) -> Vec<TableCell> {
    let decisions = shadow["decisions"].as_object().into_iter().flatten();
    let decisions = decisions.filter(|(_, count)| count.as_u64() != Some(0));
    let decisions: Vec<String> = decisions
        .map(|(result, count)| format!("{count} {result}"))
        .collect();
    let predicted = &shadow["predicted_ttft"];
    let decision = match shadow["decision_us"].as_f64() {
        Some(us) => format!("{us:.1} us"),
        None => UNKNOWN.to_owned(),
    };
    vec![
        text(&shadow["route"]).into(),
        text(&shadow["pool"]).into(),
        text(&shadow["policy"]).into(),
        text(&shadow["version"]).into(),
        match decisions.is_empty() {
            true => UNKNOWN.to_owned(),
            false => decisions.join(", "),
        }
        .into(),
        number(&shadow["dropped"]).into(),
        millis(&predicted["shadow_ms"]).into(),
        millis(&predicted["active_ms"]).into(),
        decision.into(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_canary_that_waits_for_evidence_reports_which_of_each_arm() {
        let missing = |policy: &str, of: &str, have: u64, need: u64| json!({ "measure": "ttft", "policy": policy, "of": of, "have": have, "need": need });
        let mut arm = json!({
            "policy": "mine", "verdict": "undecided", "stopped": null,
            "waits_for": [
                missing("mine", "first-tokens", 0, 100),
                missing("ttft-queue", "first-tokens", 40, 100),
                missing("ttft-queue", "session-groups", 2, 8),
            ],
        });
        assert_eq!(
            verdict(&arm),
            "undecided; waits for control: ttft 40 of 100 first-tokens, ttft 2 of 8 session-groups; \
             canary: ttft 0 of 100 first-tokens"
        );
        arm["waits_for"] = json!([missing("mine", "first-tokens", 0, 100)]);
        assert_eq!(
            verdict(&arm),
            "undecided; waits for canary: ttft 0 of 100 first-tokens"
        );
    }

    #[test]
    fn a_stopped_canary_reports_why() {
        let arm = |stopped: Value| json!({ "verdict": "worse", "stopped": stopped, "waits_for": [] });
        assert_eq!(
            verdict(&arm(json!({ "reason": "consecutive-failures", "failures": 5 }))),
            "stopped: 5 failures in a row"
        );
        let compared = json!({ "reason": "worse", "failures": null, "look": { "measure": "ttft" } });
        assert_eq!(verdict(&arm(compared)), "stopped: ttft worse");
        let agreed = json!({ "reason": "agreed", "failures": null, "look": null, "router": "b7f0" });
        assert_eq!(verdict(&arm(agreed)), "stopped by the router b7f0");
    }

    #[test]
    fn both_kinds_of_trials_are_listed_and_their_absence_is_reported() {
        let page = json!({
            "trials": [{ "pool": "chat", "route": "1", "arms": [{
                "policy": "mine", "version": "aa", "share": 0.05, "state": "running", "requests": 40,
                "error_share": 0.0, "ttft": { "p50_ms": 120.0, "p95_ms": 800.0 }, "cached_share": 0.5,
                "verdict": "undecided", "stopped": null, "waits_for": [],
            }] }],
            "shadows": [],
        });
        let answers = [RouterAnswer {
            router: "http://a:1".to_owned(),
            page: Ok(page),
        }];
        let look = TableLook::default();
        let expected = "\
route  pool  policy  version  share  state    requests  errors  first token p50     p95  cached  verdict
    1  chat  mine    aa         5 %  running        40     0 %           120 ms  800 ms    50 %  undecided
";
        assert_eq!(arms(&answers, look).to_string(), expected);
        assert_eq!(shadows(&answers, look).to_string(), "none\n");
    }
}
