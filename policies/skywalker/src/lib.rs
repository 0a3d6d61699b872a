//! Policy: selective pushing (SkyWalker). Requests go only to workers without waiting prompts, the rest wait in the
//! router, first come, first served.
//!
//! Of the workers that take requests the one with the longest prefix is chosen, if that is a good part of the prompt;
//! else the least loaded one. README.md defines the rule and lists the differences from the paper.

use conductor_policy_sdk::{
    Call, Column, Host, OptionalNumber, Params, Phase, Plan, Policy, PrefixMatches, RequestNumber, Row,
    Verdict, export_policy,
};

/// A request that may be held for less than this is sent immediately, in milliseconds.
const LAST_MS: f64 = 1_000.0;
/// Longest time until a held request is decided again, in milliseconds. Freed capacity comes earlier.
const AGAIN_MS: f64 = 10_000.0;

/// Policy: selective pushing by pending requests.
#[derive(Debug)]
pub struct SkyWalker {
    prefix: PrefixMatches,
    waiting: Column,
    requests: Column,
    weight: Column,
    left_ms: RequestNumber,
    tried: RequestNumber,
    /// Requests without a first token below which a worker of weight 1 receives another.
    most_pending: f64,
    /// Share of the prompt that a prefix must have to be followed.
    least_match: f64,
}

impl Policy for SkyWalker {
    const NAME: &'static str = "skywalker";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            prefix: PrefixMatches::new(plan),
            waiting: plan.column("load.queued"),
            requests: plan.column("load.requests"),
            weight: plan.column("worker.weight"),
            left_ms: plan.request("request.hold-left-ms"),
            tried: plan.request("request.tried"),
            most_pending: params
                .unit("requests")
                .about("Requests without a first token below which a worker of weight 1 receives another.")
                .number("most-pending", 1.0, 1.0..=1_000_000.0),
            least_match: params
                .unit("share")
                .about("Share of the prompt that the longest prefix must have to be followed.")
                .number("least-match", 0.5, 0.0..=1.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        if call.request().phase == Phase::Decode {
            return Verdict::route_to(call.least(|| host.random(), |row| self.load(row)));
        }
        let left_ms = call.number(self.left_ms);
        // An unknown time means that the pool holds no requests.
        let may_wait = left_ms > LAST_MS && call.number(self.tried).known_or(0.0) == 0.0;
        let takes = |row: &Row<'_>| !may_wait || self.takes(row);
        if !call.rows().any(|row| takes(&row)) {
            return Verdict::Queue {
                order: 0.0,
                ask_again_ms: AGAIN_MS.min(left_ms - LAST_MS).clamp(1.0, AGAIN_MS) as u32,
            };
        }
        // A NaN cost is never chosen.
        let only = |row: &Row<'_>, cost: f64| if takes(row) { cost } else { f64::NAN };
        let longest = call.greatest(|row| only(row, self.prefix.matched(row)));
        let is_followed = longest > 0.0 && longest >= self.least_match * self.prefix.prompt(call);
        let cost = |row: &Row<'_>| match is_followed && self.prefix.matched(row) < longest {
            true => f64::NAN,
            false => only(row, self.load(row)),
        };
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

impl SkyWalker {
    /// Returns true if the worker has room for a request that would not wait there.
    fn takes(&self, row: &Row<'_>) -> bool {
        row.get(self.waiting) < self.most_pending * row.get(self.weight)
    }

    fn load(&self, row: &Row<'_>) -> f64 {
        (row.get(self.requests) + 1.0) / row.get(self.weight)
    }
}

export_policy!(SkyWalker);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn policy(params: &str) -> Configured<SkyWalker> {
        Configured::new(params).unwrap()
    }

    fn fleet() -> Scenario {
        let names = ["a", "b", "c"];
        let mut fleet = Scenario::new(names);
        fleet
            .request("request.prompt-tokens", 1_000.0)
            .request("request.hold-left-ms", 30_000.0);
        for name in names {
            fleet.holds(name, 0.0);
        }
        fleet
    }

    /// Gives a worker so many requests past their first token.
    fn answering(fleet: &mut Scenario, name: &str, requests: f64) {
        fleet
            .set(name, "load.requests", requests)
            .set(name, "load.decoding", requests);
    }

    #[test]
    fn a_worker_with_a_waiting_prompt_receives_nothing_however_much_it_has_cached() {
        let mut fleet = fleet();
        fleet.holds("a", 900.0).set("a", "load.queued", 1.0);
        answering(&mut fleet, "c", 1.0);
        assert_eq!(fleet.route(&policy("{}")), Some("b"));
        assert_eq!(fleet.route(&policy(r#"{"most-pending": 2}"#)), Some("a"));
        fleet.set("a", "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy("{}")), Some("a"), "twice as fast");
    }

    #[test]
    fn answers_under_way_do_not_keep_a_request_away() {
        let mut fleet = fleet();
        fleet.holds("a", 900.0);
        answering(&mut fleet, "a", 40.0);
        assert_eq!(fleet.route(&policy("{}")), Some("a"));
    }

    #[test]
    fn a_prefix_of_less_than_half_is_not_followed() {
        let mut fleet = fleet();
        fleet.holds("a", 499.0);
        answering(&mut fleet, "a", 1.0);
        answering(&mut fleet, "b", 1.0);
        assert_eq!(fleet.route(&policy("{}")), Some("c"));
        fleet.holds("a", 500.0);
        assert_eq!(fleet.route(&policy("{}")), Some("a"));
    }

    #[test]
    fn of_equal_prefixes_the_less_loaded_worker_is_chosen() {
        let mut fleet = fleet();
        fleet.holds("a", 600.0).holds("b", 600.0);
        answering(&mut fleet, "a", 2.0);
        assert_eq!(fleet.route(&policy("{}")), Some("b"));
    }

    #[test]
    fn if_all_have_waiting_prompts_the_request_waits_in_the_order_of_arrival() {
        let mut fleet = fleet();
        for name in ["a", "b", "c"] {
            fleet.set(name, "load.queued", 1.0);
        }
        let held = fleet.decide(&policy("{}"));
        let first_come = Verdict::Queue {
            order: 0.0,
            ask_again_ms: 10_000,
        };
        assert_eq!(held, first_come);
        fleet.request("request.hold-left-ms", 1_000.0);
        assert!(
            fleet.route(&policy("{}")).is_some(),
            "sent a second before the timeout"
        );
        fleet.request("request.hold-left-ms", f64::NAN);
        assert!(fleet.route(&policy("{}")).is_some(), "the pool holds no requests");
    }

    #[test]
    fn a_retry_and_a_decode_leg_do_not_wait() {
        let mut fleet = fleet();
        for (name, requests) in [("a", 3.0), ("b", 2.0), ("c", 4.0)] {
            fleet
                .set(name, "load.queued", 1.0)
                .set(name, "load.requests", requests);
        }
        fleet.request("request.tried", 1.0);
        assert_eq!(fleet.route(&policy("{}")), Some("b"));
        fleet.request("request.tried", 0.0).phase(Phase::Decode);
        assert_eq!(fleet.route(&policy("{}")), Some("b"));
    }
}
