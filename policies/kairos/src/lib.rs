//! Policy: the worker with the earliest first token, and a queue in the router that is ordered by urgency (Kairos).
//!
//! `urgency = 1 / (slack * work)`: of requests with the same slack the shorter one goes first, and a long one
//! overtakes as its deadline comes near. README.md defines the terms and lists the differences from the paper.

use conductor_policy_sdk::{
    Call, CallForecast, Column, Forecast, Host, LeastCost, OptionalNumber, Params, Phase, Plan, Policy,
    RequestNumber, Row, Verdict, export_policy,
};

/// Offset that sorts requests that miss their deadline after all others.
const LATE: f64 = 1e15;
/// A request that may be held for less than this is sent immediately, in milliseconds.
const LAST_MS: f64 = 1_000.0;

/// Policy: urgency-ordered prefill.
#[derive(Debug)]
pub struct Kairos {
    forecast: Forecast,
    queue: UrgencyQueue,
    weight: Column,
    tbt_ms: Column,
    decoding: Column,
}

/// Configured queue.
#[derive(Debug)]
struct UrgencyQueue {
    queued: RequestNumber,
    waited_ms: RequestNumber,
    left_ms: RequestNumber,
    tried: RequestNumber,
    prefill_tokens: Column,
    weight: Column,
    /// Deadline of the first token, in milliseconds.
    limit_ms: f64,
    /// Queued prompt tokens up to which a worker of weight 1 receives the next request.
    ahead_tokens: f64,
    /// Time after which the urgency of a held request is computed again, in milliseconds.
    refresh_ms: f64,
    /// Time of a prompt token while it is not predicted, in milliseconds.
    usual_token_ms: f64,
}

/// Work of a request at a worker, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct PlacedWork {
    /// Prompts that go before: queued at the worker, without those held for it.
    before_ms: f64,
    own_ms: f64,
}

impl Policy for Kairos {
    const NAME: &'static str = "kairos";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            forecast: Forecast::configure(params, plan),
            queue: UrgencyQueue::configure(params, plan),
            weight: plan.column("worker.weight"),
            tbt_ms: plan.column("cost.tbt-ms"),
            decoding: plan.column("load.requests"),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        if call.request().phase == Phase::Decode {
            return self.decode(call, host);
        }
        let forecast = self.forecast.of(call);
        let held = self.queue.held(call, host);
        let unit_ms = |row: &Row<'_>| self.queue.unit_ms(&forecast, row);
        // Work is held in milliseconds already.
        let cost = |row: &Row<'_>| {
            (forecast.queue(row) + forecast.prefill(row)) * unit_ms(row) + held_ms(&held, row)
        };
        let least = call.least(|| host.random(), cost);
        let placed = least.and_then(|LeastCost { row, .. }| call.rows().nth(row));
        let Some(row) = placed else {
            return Verdict::route_to(least);
        };
        let work = PlacedWork {
            before_ms: forecast.queue(&row) * unit_ms(&row),
            own_ms: forecast.prefill(&row) * unit_ms(&row),
        };
        let held = self.queue.hold(call, host, &row, work);
        held.unwrap_or_else(|| Verdict::route_to(least))
    }
}

impl Kairos {
    /// Chooses the least predicted time between tokens for a decode leg, or the fewest requests while it is unknown
    /// for some candidate.
    fn decode(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let is_predicted = call.rows().all(|row| row.get(self.tbt_ms) >= 0.0);
        let cost = |row: &Row<'_>| match is_predicted {
            true => row.get(self.tbt_ms),
            false => (row.get(self.decoding) + 1.0) / row.get(self.weight),
        };
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

impl UrgencyQueue {
    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let limit_s = params
            .unit("seconds")
            .about("Deadline of the first token.")
            .number("first-token-within-s", 8.0, 0.001..=86_400.0);
        Self {
            queued: plan.request("pool.queued"),
            waited_ms: plan.request("request.waited-ms"),
            left_ms: plan.request("request.hold-left-ms"),
            tried: plan.request("request.tried"),
            prefill_tokens: plan.column("load.prefill-tokens"),
            weight: plan.column("worker.weight"),
            limit_ms: limit_s * 1e3,
            ahead_tokens: params
                .unit("tokens")
                .about("Queued prompt tokens up to which a worker of weight 1 receives the next request.")
                .number("ahead-tokens", 4_096.0, 0.0..=100_000_000.0),
            refresh_ms: params
                .unit("milliseconds")
                .about("Time after which the urgency of a held request is computed again.")
                .number("refresh-ms", 1_000.0, 10.0..=10_000.0),
            usual_token_ms: params
                .unit("milliseconds")
                .about("Default time of a prompt token while the router has not measured it.")
                .number("token-ms", 0.1, 0.000_001..=1_000.0),
        }
    }

    /// Queries the requests held for each candidate, with their work in milliseconds.
    fn held(&self, call: &Call<'_>, host: &impl Host) -> Vec<u32> {
        if call.number(self.queued).known_or(0.0) == 0.0 {
            return Vec::new();
        }
        host.ahead(&vec![u32::MAX; call.ids().len()])
    }

    /// Holds a request whose worker has enough queued work.
    fn hold(&self, call: &Call<'_>, host: &impl Host, row: &Row<'_>, work: PlacedWork) -> Option<Verdict> {
        let left_ms = call.number(self.left_ms);
        let is_free = row.get(self.prefill_tokens) <= self.ahead_tokens * row.get(self.weight);
        // An unknown time means that the pool holds no requests.
        let may_wait = left_ms > LAST_MS;
        if is_free || !may_wait || call.number(self.tried).known_or(0.0) > 0.0 {
            return None;
        }
        host.wait_for(row.index(), work.own_ms as u32);
        Some(Verdict::Queue {
            order: self.order(call, work),
            ask_again_ms: self.refresh_ms.min(left_ms - LAST_MS).clamp(1.0, 10_000.0) as u32,
        })
    }

    /// Returns the sort key: the reciprocal of the urgency.
    fn order(&self, call: &Call<'_>, work: PlacedWork) -> f64 {
        let waited_ms = call.number(self.waited_ms).known_or(0.0);
        let slack_ms = self.limit_ms - waited_ms - work.before_ms - work.own_ms;
        if slack_ms < 0.0 {
            LATE + work.own_ms
        } else {
            slack_ms * work.own_ms
        }
    }

    /// Returns the milliseconds of one unit of the forecast.
    fn unit_ms(&self, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        // An overhead is in tokens, and 0 if the unit is predicted milliseconds.
        let is_predicted = forecast.overhead(row, 1.0) == 0.0;
        if is_predicted { 1.0 } else { self.usual_token_ms }
    }
}

/// Returns the work held for a candidate, in milliseconds.
fn held_ms(held: &[u32], row: &Row<'_>) -> f64 {
    held.get(2 * row.index() + 1).copied().unwrap_or(0).into()
}

export_policy!(Kairos);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    /// Sends a request only to a worker without queued work.
    const LATE_BINDING: &str = r#"{"ahead-tokens": 0}"#;

    fn policy(params: &str) -> Configured<Kairos> {
        Configured::new(params).unwrap()
    }

    fn fleet<const N: usize>(names: [&str; N], prompt: f64) -> Scenario {
        let mut fleet = Scenario::new(names);
        fleet
            .request("request.prompt-tokens", prompt)
            .request("request.hold-left-ms", 30_000.0);
        for name in names {
            fleet.holds(name, 0.0);
        }
        fleet
    }

    /// Returns the sort key of a held request at a worker with 1,000 tokens of queue: 0.1 s.
    fn order(prompt: f64, waited_ms: f64) -> f64 {
        let mut fleet = fleet(["a"], prompt);
        fleet
            .set("a", "load.prefill-tokens", 1_000.0)
            .request("request.waited-ms", waited_ms);
        match fleet.decide(&policy(LATE_BINDING)) {
            Verdict::Queue { order, .. } => order,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_idle_worker_takes_the_request_with_the_earliest_first_token() {
        let mut fleet = fleet(["a", "b"], 20_000.0);
        fleet.holds("b", 15_000.0);
        assert_eq!(fleet.route(&policy(LATE_BINDING)), Some("b"));
        fleet.set("b", "load.prefill-tokens", 16_000.0);
        assert_eq!(fleet.route(&policy(LATE_BINDING)), Some("a"));
    }

    #[test]
    fn a_request_waits_in_the_router_while_its_worker_computes() {
        let mut fleet = fleet(["a"], 20_000.0);
        fleet.set("a", "load.prefill-tokens", 1.0);
        let verdict = fleet.decide(&policy(LATE_BINDING));
        assert!(matches!(verdict, Verdict::Queue { .. }), "{verdict:?}");
        assert_eq!(fleet.waits_for(), Some(("a", 2_000)), "2 s of work");
        assert_eq!(fleet.route(&policy(r#"{"ahead-tokens": 1}"#)), Some("a"));
        fleet.request("request.hold-left-ms", 900.0);
        assert_eq!(fleet.route(&policy(LATE_BINDING)), Some("a"));
    }

    #[test]
    fn work_held_for_a_worker_delays_the_first_token_there() {
        let mut fleet = fleet(["a", "b"], 20_000.0);
        fleet
            .holds("a", 10_000.0)
            .set("a", "load.prefill-tokens", 1.0)
            .set("b", "load.prefill-tokens", 1.0);
        fleet.decide(&policy(LATE_BINDING));
        assert_eq!(fleet.waits_for(), Some(("a", 1_000)));
        fleet.hold("a", 1_100);
        fleet.decide(&policy(LATE_BINDING));
        assert_eq!(fleet.waits_for(), Some(("b", 2_000)));
    }

    #[test]
    fn of_the_same_slack_the_shorter_goes_first() {
        // 8 s less 0.1 s of queue: 1 s of own work after 3 s of waiting, and 2 s of it after 2 s, leave 3.9 s.
        assert!(order(10_000.0, 3_000.0) < order(20_000.0, 2_000.0));
    }

    #[test]
    fn a_long_request_overtakes_when_its_deadline_comes_near() {
        let short = order(5_000.0, 0.0);
        assert!(order(40_000.0, 0.0) > short);
        // Of 8 s, 4 s of work, 0.1 s of queue and 3.8 s of waiting leave 0.1 s.
        assert!(order(40_000.0, 3_800.0) < short);
    }

    #[test]
    fn a_request_that_misses_its_deadline_anyway_goes_last() {
        let late = order(40_000.0, 4_000.0);
        assert!(late > order(40_000.0, 0.0) && late > order(79_000.0, 0.0));
        assert!(
            order(30_000.0, 9_000.0) < late,
            "of late ones the shorter goes first"
        );
    }

    #[test]
    fn a_decode_leg_goes_where_tokens_come_fastest() {
        let mut fleet = fleet(["a", "b"], 100.0);
        fleet.phase(Phase::Decode);
        fleet.set("a", "load.requests", 3.0).set("b", "cost.tbt-ms", 50.0);
        assert_eq!(fleet.route(&policy(LATE_BINDING)), Some("b"));
        fleet.set("a", "cost.tbt-ms", 40.0);
        assert_eq!(fleet.route(&policy(LATE_BINDING)), Some("a"));
    }
}
