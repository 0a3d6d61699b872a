//! Policy: session affinity; new sessions go to the least loaded worker.
//!
//! The router stores each session's worker (`sessions` of the contract), so it survives instances, faults and
//! updates of this policy. A worker that is no candidate is not returned. Its sessions move one by one, each
//! with its next request.

use conductor_policy_sdk::{Call, Host, Params, Phase, Plan, Policy, Verdict, WorkerLoad, export_policy};

/// Policy: session affinity.
#[derive(Debug)]
pub struct SessionAffinity {
    load: WorkerLoad,
    ttl_ms: u32,
}

impl Policy for SessionAffinity {
    const NAME: &'static str = "session-affinity";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let ttl_s = params
            .unit("seconds")
            .about("Time after the last request for which a session stays with its worker.")
            .number("ttl-s", 600.0, 1.0..=86_400.0);
        Self {
            load: WorkerLoad::requests(plan),
            ttl_ms: (ttl_s * 1000.0) as u32,
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        // Affinity follows the cache of the prefill worker, so a decode leg has none.
        if call.request().phase == Phase::Decode {
            return Verdict::route_to(self.load.least(call, host));
        }
        let row = match host.recall_session() {
            Some(row) => Some(row),
            None => self.load.least(call, host).map(|least| least.row),
        };
        let Some(row) = row else { return Verdict::Pass };
        host.remember_session(row, self.ttl_ms);
        Verdict::Route { row, score: f64::NAN }
    }
}

export_policy!(SessionAffinity);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<SessionAffinity> {
        Configured::new(params).unwrap()
    }

    #[test]
    fn a_session_stays_with_its_worker_regardless_of_load() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.session(Some(7)).set("a", "load.requests", 1.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("b", "load.requests", 50.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        assert_eq!(fleet.session(Some(8)).route(&policy), Some("a"));
    }

    #[test]
    fn a_session_whose_worker_is_no_candidate_moves_and_stays() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.session(Some(7)).set("a", "load.requests", 1.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        assert_eq!(fleet.offer(&["a"]).route(&policy), Some("a"));
        assert_eq!(fleet.offer(&["a", "b"]).route(&policy), Some("a"));
    }

    #[test]
    fn each_request_restarts_the_sessions_time() {
        let policy = configured(r#"{"ttl-s": 10}"#);
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.session(Some(7)).set("a", "load.requests", 1.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("b", "load.requests", 50.0);
        for now_s in [9, 18, 27] {
            assert_eq!(fleet.clock(now_s * 1_000_000).route(&policy), Some("b"));
        }
        assert_eq!(fleet.clock(37_000_000).route(&policy), Some("a"));
    }

    #[test]
    fn requests_without_a_session_and_decode_legs_go_to_the_least_loaded_for_its_weight() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .set("a", "load.requests", 3.0)
            .set("b", "load.requests", 2.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("a", "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy), Some("a"));
        fleet.session(Some(7)).phase(Phase::Decode);
        assert_eq!(fleet.route(&policy), Some("a"));
        fleet.set("a", "load.requests", 9.0);
        assert_eq!(fleet.route(&policy), Some("b"));
    }
}
