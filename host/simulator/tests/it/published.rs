//! Published policies that are not shipped, or are shipped in another form, as their authors describe them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use routing::{
    Choice, DecisionInput, FeaturePlan, Policy, PolicyDescription, PolicyFault, SplitMix64, Verdict,
};

/// Inputs of a rule.
pub(crate) struct Shown<'a> {
    /// Rows by candidate.
    pub(crate) rows: Vec<Row>,
    /// Random numbers of the policy.
    pub(crate) random: SplitMix64,
    pub(crate) turn: &'a AtomicU64,
}

/// A candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Requests in flight.
    pub(crate) requests: f64,
    /// Milliseconds until it is free.
    pub(crate) queue_ms: f64,
    /// Milliseconds for this prompt, including its fetch.
    pub(crate) prefill_ms: f64,
}

/// Chooses a row.
pub(crate) type Rule = fn(&mut Shown<'_>) -> usize;

struct Published {
    name: &'static str,
    rule: Rule,
    plan: FeaturePlan,
    turn: AtomicU64,
}

/// Returns a policy that decides by a rule.
pub(crate) fn policy(name: &'static str, rule: Rule) -> Arc<dyn Policy> {
    let columns = [
        "load.requests",
        "load.prefill-tokens",
        "cost.token-ms",
        "cost.prefill-ms",
    ];
    Arc::new(Published {
        name,
        rule,
        plan: FeaturePlan::resolve(&[], &columns).expect("names of the catalogue"),
        turn: AtomicU64::new(0),
    })
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PolicyDescription for Published {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Published {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let row = |row: &[f64]| Row {
            requests: row[0],
            queue_ms: row[1] * row[2],
            prefill_ms: row[3],
        };
        let mut shown = Shown {
            rows: input.numbers.chunks_exact(4).map(row).collect(),
            random: SplitMix64::of_decision(input.request.seed(), input.request.attempt),
            turn: &self.turn,
        };
        let row = (self.rule)(&mut shown) as u32;
        Ok(Verdict::Route(Choice {
            row,
            prefill: None,
            score: f64::NAN,
        }))
    }
}

impl Shown<'_> {
    /// Returns the row with the least cost; of equals one by lot.
    fn least(&mut self, cost: impl Fn(&Row) -> f64) -> usize {
        let costs: Vec<f64> = self.rows.iter().map(cost).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let equals: Vec<usize> = (0..costs.len()).filter(|at| costs[*at] <= least).collect();
        equals[self.random.next() as usize % equals.len()]
    }
}

pub(crate) fn round_robin(shown: &mut Shown<'_>) -> usize {
    shown.turn.fetch_add(1, Ordering::Relaxed) as usize % shown.rows.len()
}

pub(crate) fn least_requests(shown: &mut Shown<'_>) -> usize {
    shown.least(|row| row.requests)
}

/// Returns the time to first token: with the worker's own cache, or, where the cluster fetches, what Mooncake's
/// Algorithm 1 estimates.
pub(crate) fn time_to_first_token(shown: &mut Shown<'_>) -> usize {
    shown.least(|row| row.queue_ms + row.prefill_ms)
}
