//! Policy: two hash homes for each beginning of a prompt (DualMap). The warmer home takes the request unless its first
//! token would be late there; then the less loaded one of the two does.
//!
//! README.md defines the rule and lists the differences from the paper.

use conductor_policy_sdk::{
    Call, CallForecast, Column, Forecast, Host, Params, Phase, Plan, Policy, PrefixKey, Row, Verdict,
    WorkerLoad, export_policy, mix,
};

/// Salts of the two hash functions.
const HOMES: [u64; 2] = [0x6475_616c, 0x6d61_7020];

/// Policy: two hash homes, and a switch by the deadline.
#[derive(Debug)]
pub struct DualMap {
    prefix: PrefixKey,
    forecast: Forecast,
    load: WorkerLoad,
    name: Column,
    weight: Column,
    /// Deadline of the first token, in milliseconds.
    limit_ms: f64,
    /// Time of a prompt token while it is not predicted, in milliseconds.
    usual_token_ms: f64,
}

impl Policy for DualMap {
    const NAME: &'static str = "dualmap";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let limit_s = params
            .unit("seconds")
            .about("Deadline of the first token; above it the less loaded home is chosen.")
            .number("first-token-within-s", 5.0, 0.001..=86_400.0);
        Self {
            prefix: PrefixKey::configure(params, plan),
            forecast: Forecast::configure(params, plan),
            load: WorkerLoad::requests(plan),
            name: plan.column("worker.name-hash"),
            weight: plan.column("worker.weight"),
            limit_ms: limit_s * 1e3,
            usual_token_ms: params
                .unit("milliseconds")
                .about("Default time of a prompt token while the router has not measured it.")
                .number("token-ms", 0.1, 0.000_001..=1_000.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        if call.request().phase == Phase::Decode {
            return Verdict::route_to(self.load.least(call, host));
        }
        let forecast = self.forecast.of(call);
        let key = self.prefix.of(call, host).or(call.request().session);
        let homes = key.and_then(|key| self.homes(call, key));
        let Some(homes) = homes else {
            return Verdict::route_to(call.least(|| host.random(), |row| pending(&forecast, row)));
        };
        let [warm, cold] = by_warmth(&forecast, homes);
        let is_late = pending(&forecast, &warm) * self.unit_ms(&forecast, &warm) > self.limit_ms;
        let is_equal = forecast.matched(&warm) <= forecast.matched(&cold);
        let chosen = match is_late || is_equal {
            true => lesser(&forecast, warm, cold),
            false => warm,
        };
        Verdict::Route {
            row: chosen.index(),
            score: -pending(&forecast, &chosen),
        }
    }
}

impl DualMap {
    /// Returns the two homes of a key; none if there is one candidate only.
    fn homes<'c>(&self, call: &Call<'c>, key: u64) -> Option<[Row<'c>; 2]> {
        let first = self.home(call, mix(key, HOMES[0]), None)?;
        let second = self.home(call, mix(key, HOMES[1]), Some(first.index()))?;
        Some([first, second])
    }

    /// Returns the home of a hash among all candidates but one: weighted rendezvous hashing.
    fn home<'c>(&self, call: &Call<'c>, hash: u64, except: Option<usize>) -> Option<Row<'c>> {
        let rank = |row: &Row<'_>| {
            let drawn = unit(mix(hash, row.get(self.name) as u64));
            -drawn.ln() / row.get(self.weight)
        };
        let others = call.rows().filter(|row| Some(row.index()) != except);
        others.min_by(|one, other| rank(one).total_cmp(&rank(other)))
    }

    /// Returns the milliseconds of one unit of the forecast.
    fn unit_ms(&self, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        // An overhead is in tokens, and 0 if the unit is predicted milliseconds.
        let is_predicted = forecast.overhead(row, 1.0) == 0.0;
        if is_predicted { 1.0 } else { self.usual_token_ms }
    }
}

/// Returns the work before the first token of this request, with that of the queue.
fn pending(forecast: &CallForecast, row: &Row<'_>) -> f64 {
    forecast.queue(row) + forecast.prefill(row)
}

/// Returns the homes, the one with the longer match first.
fn by_warmth<'c>(forecast: &CallForecast, [first, second]: [Row<'c>; 2]) -> [Row<'c>; 2] {
    if forecast.matched(&second) > forecast.matched(&first) {
        [second, first]
    } else {
        [first, second]
    }
}

/// Returns the home with less pending work; of equals the first.
fn lesser<'c>(forecast: &CallForecast, first: Row<'c>, second: Row<'c>) -> Row<'c> {
    if pending(forecast, &second) < pending(forecast, &first) {
        second
    } else {
        first
    }
}

/// Maps a hash to a number strictly between 0 and 1.
fn unit(hash: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 52) as f64;
    ((hash >> 12) as f64 + 0.5) / STEPS
}

export_policy!(DualMap);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn configured(params: &str) -> Configured<DualMap> {
        Configured::new(params).unwrap()
    }

    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(NAMES);
        for (name, hash) in NAMES.into_iter().zip([11.0, 22.0, 33.0, 44.0]) {
            fleet.set(name, "worker.name-hash", hash).holds(name, 0.0);
        }
        fleet
    }

    /// Returns the two homes of a prompt: its choice, and the choice when that one is busy.
    fn homes(fleet: &mut Scenario, policy: &Configured<DualMap>, prompt: &[u64]) -> [String; 2] {
        let first = fleet.prompt(prompt).route(policy).unwrap().to_owned();
        fleet.set(&first, "load.prefill-tokens", 90_000.0);
        let second = fleet.route(policy).unwrap().to_owned();
        fleet.set(&first, "load.prefill-tokens", 0.0);
        [first, second]
    }

    #[test]
    fn a_beginning_has_two_homes_and_never_another() {
        let policy = configured("{}");
        let mut fleet = fleet();
        let [first, second] = homes(&mut fleet, &policy, &[1; 20]);
        assert_ne!(first, second);
        for name in NAMES {
            let load = if name == first || name == second {
                80_000.0
            } else {
                0.0
            };
            fleet.set(name, "load.prefill-tokens", load);
        }
        let chosen = fleet.route(&policy).unwrap();
        assert!(chosen == first || chosen == second, "idle workers are no homes");
    }

    #[test]
    fn beginnings_are_spread_over_all_pairs() {
        let policy = configured("{}");
        let mut fleet = fleet();
        let mut pairs: Vec<[String; 2]> = (0..200)
            .map(|document| {
                let mut pair = homes(&mut fleet, &policy, &[document; 9]);
                pair.sort();
                pair
            })
            .collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), 6, "all pairs of four workers");
    }

    #[test]
    fn the_warmer_home_takes_the_request_until_its_first_token_would_be_late() {
        let policy = configured("{}");
        let mut fleet = fleet();
        let [first, second] = homes(&mut fleet, &policy, &[1; 100]);
        // 6,400 tokens, of which the second home has 6,000. At 0.1 ms a token 5 s are 50,000 tokens.
        fleet
            .holds(&second, 6_000.0)
            .set(&second, "load.prefill-tokens", 49_600.0);
        assert_eq!(fleet.route(&policy), Some(&*second));
        fleet.set(&second, "load.prefill-tokens", 49_601.0);
        assert_eq!(fleet.route(&policy), Some(&*first));
        assert_eq!(
            fleet.route(&configured(r#"{"first-token-within-s": 30}"#)),
            Some(&*second)
        );
        fleet.set(&first, "load.prefill-tokens", 60_000.0);
        assert_eq!(
            fleet.route(&policy),
            Some(&*second),
            "both are late: the lesser load"
        );
    }

    #[test]
    fn predicted_times_decide_what_is_late() {
        let policy = configured("{}");
        let mut fleet = fleet();
        let [first, second] = homes(&mut fleet, &policy, &[1; 100]);
        fleet
            .holds(&second, 6_000.0)
            .set(&second, "load.prefill-tokens", 10_000.0);
        for name in NAMES {
            fleet
                .set(name, "cost.token-ms", 0.48)
                .set(name, "cost.prefill-ms", 192.0);
        }
        assert_eq!(fleet.route(&policy), Some(&*second), "4,800 + 192 ms");
        fleet.set(&second, "cost.token-ms", 0.49);
        assert_eq!(fleet.route(&policy), Some(&*first));
    }

    #[test]
    fn a_common_beginning_is_no_home_of_all() {
        let policy = configured("{}");
        let mut fleet = fleet();
        let mut counts = [0_u32; 4];
        for request in 0..1_000 {
            let home = fleet
                .prompt(&[&[7; 20][..], &[request; 20]].concat())
                .route(&policy);
            counts[NAMES.iter().position(|name| home == Some(*name)).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (150..450).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn without_tokens_and_for_decode_legs_the_load_decides() {
        let policy = configured("{}");
        let mut fleet = fleet();
        for (name, tokens) in NAMES.into_iter().zip([4.0, 3.0, 2.0, 3.0]) {
            fleet
                .set(name, "load.prefill-tokens", tokens)
                .set(name, "load.requests", 5.0 - tokens);
        }
        assert_eq!(fleet.route(&policy), Some("c"));
        assert_eq!(fleet.phase(Phase::Decode).route(&policy), Some("a"));
    }
}
