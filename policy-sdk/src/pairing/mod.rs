//! Pair placement: the prefill and decode worker with the least joint cost, or one worker for both legs if
//! that costs no more.
//!
//! `cost(p, d) = own(p) + transfer(p, d) + crowding(d)` is compared with `cost(w) = own(w)`. The README of
//! the policy `pd-pairing` derives each term. The policy supplies the cost of a single worker.

mod terms;

use crate::call::{Call, LeastCost, OptionalNumber, Phase, Row};
use crate::host::Role;
use crate::lanes::{NumberMask, RowPair};
use crate::params::Params;
use crate::plan::{Column, Plan, RequestNumber};
use crate::verdict::Verdict;
use terms::CostTerms;
pub use terms::{CallCosts, OwnCosts};

/// Configured pair placement: the cost terms, and the condition for decoding workers that serve a whole
/// request.
#[derive(Debug, Clone)]
pub struct Pairing {
    terms: CostTerms,
    near: Option<NearPairs>,
    alone: AloneLimits,
}

/// Chosen worker or pair. Each cost is that of the whole placement with the worker of its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlacementChoice {
    /// One worker for the whole request or the leg to place; none if no candidate has a cost.
    One(Option<LeastCost>),
    /// Two workers, one for each leg.
    Pair {
        /// Worker that computes the prompt.
        prefill: LeastCost,
        /// Worker that decodes and answers.
        decode: LeastCost,
    },
}

impl PlacementChoice {
    /// Returns the row of the worker that computes the prompt.
    #[must_use]
    pub fn computes(&self) -> Option<usize> {
        match self {
            Self::One(one) => one.map(|least| least.row),
            Self::Pair { prefill, .. } => Some(prefill.row),
        }
    }

    /// Returns the row of the worker that answers.
    #[must_use]
    pub fn answers(&self) -> Option<usize> {
        match self {
            Self::One(one) => one.map(|least| least.row),
            Self::Pair { decode, .. } => Some(decode.row),
        }
    }

    /// Converts the choice to a verdict.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::One(one) => Verdict::route_to(one),
            Self::Pair { prefill, decode } => Verdict::Pair {
                row: decode.row,
                prefill: prefill.row,
                score: -decode.cost,
            },
        }
    }
}

/// Pairs with a short network path.
#[derive(Debug, Clone)]
struct NearPairs {
    /// Label whose value is equal on both workers of a near pair.
    label: Column,
    /// Cost factor of a transfer between workers that are not near; at least 1.
    far_factor: f64,
}

/// Limits within which a decode worker may serve a whole request (conditional disaggregation).
#[derive(Debug, Clone)]
struct AloneLimits {
    /// Permission of the pool.
    allowed: RequestNumber,
    /// Upper limit of the tokens to compute on the decode worker.
    below_tokens: f64,
    /// Upper limit of the tokens to compute, as a share of the prompt.
    below_share: f64,
    /// Maximum number of requests already decoding on the worker.
    busy_decoding: f64,
}

/// Candidates of one whole request, by role.
struct PairSearch<'a, S> {
    pairing: &'a Pairing,
    call: Call<'a>,
    costs: CallCosts<'a>,
    prefill: Vec<Candidate<'a>>,
    decode: Vec<Candidate<'a>>,
    mixed: Vec<Candidate<'a>>,
    alone_allowed: bool,
    /// Salt for breaking ties.
    salt: S,
}

/// Candidate with its cost as a single worker.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    row: Row<'a>,
    /// Tokens of the prompt that are not cached there.
    uncached: f64,
    cost: f64,
}

/// Least prefill cost over all prefill workers, and by near label.
struct CheapestPrefill {
    anywhere: f64,
    /// Least cost for each value of the near label, in ascending order of the value.
    near: Vec<(f64, f64)>,
}

impl Pairing {
    /// Reads the parameters of pairs and of [`Price`](crate::Price), and requests the columns. Ties go by the workers'
    /// names.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let key = params
            .about("Label key: workers with equal values are near, such as one rack or NIC group.")
            .text("near-label", "");
        plan.name_hash();
        let far_factor = params
            .about("Cost factor of a transfer between workers that are not near.")
            .number("far-factor", 4.0, 1.0..=1_000.0);
        Self {
            terms: CostTerms::configure(params, plan),
            near: (!key.is_empty()).then(|| NearPairs {
                label: plan.label(&key),
                far_factor,
            }),
            alone: AloneLimits {
                allowed: plan.request("request.decode-alone"),
                below_tokens: params.unit("tokens").about("Upper limit of the prompt tokens that a decode worker computes itself; 0: none while there are prefill workers.").number("alone-below-tokens", 2_048.0, 0.0..=100_000_000.0),
                below_share: params.unit("share").about("Upper limit of the same tokens as a share of the prompt; over 1: no limit.").number("alone-below-share", 0.7, 0.0..=2.0),
                busy_decoding: params.unit("requests").about("Maximum number of decoding requests on a decode worker that computes a prompt.").number("busy-decoding", 16.0, 0.0..=1_000_000.0),
            },
        }
    }

    /// Returns the cost of transferring one token's KV cache, in computed tokens.
    #[must_use]
    pub fn transfer_cost(&self) -> f64 {
        self.terms.transfer_cost()
    }

    /// Computes the candidates' costs of a call.
    #[must_use]
    pub fn costs(&self, call: &Call<'_>) -> CallCosts<'_> {
        self.terms.of(call)
    }

    /// Returns true if every candidate is a mixed worker.
    fn is_whole(&self, call: &Call<'_>) -> bool {
        !call.row_pairs().any(|rows| self.terms.serve_legs(&rows).any())
    }

    /// Finds the placement with the least cost. `own` are the candidates' costs as single workers; `salt` breaks ties.
    pub fn place<'a>(
        &'a self,
        call: &Call<'a>,
        costs: CallCosts<'a>,
        own: &OwnCosts,
        salt: impl Fn() -> u64,
    ) -> PlacementChoice {
        match call.request().phase {
            Phase::Prefill => PlacementChoice::One(call.least_of(salt, &own.cost)),
            Phase::Decode => {
                let cost = |rows: &RowPair<'_>| costs.transfer(own.uncached.of(rows)) + costs.crowding(rows);
                PlacementChoice::One(call.least_of(salt, &call.each(cost)))
            }
            Phase::Mixed if self.is_whole(call) => PlacementChoice::One(call.least_of(salt, &own.cost)),
            Phase::Mixed => PairSearch::new(self, call, costs, own, salt).place(),
        }
    }
}

impl<'a, S: Fn() -> u64> PairSearch<'a, S> {
    fn new(pairing: &'a Pairing, call: &Call<'a>, costs: CallCosts<'a>, own: &OwnCosts, salt: S) -> Self {
        let room = call.ids().len();
        let mut search = Self {
            pairing,
            call: *call,
            costs,
            prefill: Vec::with_capacity(room),
            decode: Vec::with_capacity(room),
            mixed: Vec::with_capacity(room),
            alone_allowed: call.number(pairing.alone.allowed).known_or(1.0) > 0.0,
            salt,
        };
        let own = own.uncached.iter().zip(own.cost.iter());
        for (row, (uncached, cost)) in call.rows().zip(own) {
            let candidate = Candidate { row, uncached, cost };
            match pairing.terms.role(&row) {
                Role::Prefill => search.prefill.push(candidate),
                Role::Decode => search.decode.push(candidate),
                Role::Mixed => search.mixed.push(candidate),
            }
        }
        search
    }

    /// Chooses a pair only if it costs less than one worker, because one machine fails less often than two.
    fn place(&self) -> PlacementChoice {
        let alone = self.decode.iter().filter(|one| self.may_be_alone(one));
        let whole = self.mixed.iter().chain(alone);
        let whole = self.least(whole.map(|one| (one.row, one.cost)));
        match self.pair() {
            Some((prefill, decode)) if whole.is_none_or(|whole| decode.cost < whole.cost) => {
                PlacementChoice::Pair { prefill, decode }
            }
            _ => PlacementChoice::One(whole),
        }
    }

    /// Finds the pair with the least cost.
    ///
    /// A transfer has one of two prices. So only two prefill workers matter for each decode worker: the
    /// cheapest near one and the cheapest overall.
    fn pair(&self) -> Option<(LeastCost, LeastCost)> {
        let cheapest = self.cheapest()?;
        let decode = self.least(self.decode.iter().map(|to| {
            let anywhere = cheapest.anywhere + self.transfer(to, false);
            let reached = match &self.pairing.near {
                Some(_) => least(anywhere, cheapest.near(self.label(to)) + self.transfer(to, true)),
                None => anywhere,
            };
            (to.row, reached + self.costs.crowding(&to.row))
        }))?;
        let to = self.decode.iter().find(|to| to.row.index() == decode.row)?;
        let [near, far] = [true, false].map(|is_near| self.transfer(to, is_near));
        let label = self.label(to);
        let prefill = self.least(self.prefill.iter().map(|from| {
            let transfer = if self.label(from) == label { near } else { far };
            (from.row, from.cost + transfer)
        }))?;
        Some((prefill, decode))
    }

    /// Computes the least prefill costs; none if there is no prefill worker.
    fn cheapest(&self) -> Option<CheapestPrefill> {
        let costs = self.prefill.iter().map(|from| from.cost);
        let mut cheapest = CheapestPrefill {
            anywhere: costs.reduce(least)?,
            near: Vec::new(),
        };
        if self.pairing.near.is_some() {
            for from in &self.prefill {
                cheapest.add(self.label(from), from.cost);
            }
        }
        Some(cheapest)
    }

    /// Returns true if a decode worker may serve the whole request: little to compute, most of it cached, and
    /// few decoding requests to disturb. There is no condition if no other worker can compute the prompt.
    fn may_be_alone(&self, candidate: &Candidate<'_>) -> bool {
        let AloneLimits {
            below_tokens,
            below_share,
            busy_decoding,
            ..
        } = self.pairing.alone;
        let uncached = candidate.uncached;
        let is_little = uncached < below_tokens && uncached < below_share * self.costs.quote().prompt();
        let is_idle = self.pairing.terms.decoding(&candidate.row) <= busy_decoding;
        self.prefill.is_empty() || self.alone_allowed && is_little && is_idle
    }

    fn least(&self, costs: impl Iterator<Item = (Row<'a>, f64)>) -> Option<LeastCost> {
        self.call.least_among(costs, &self.salt)
    }

    fn transfer(&self, to: &Candidate<'_>, is_near: bool) -> f64 {
        let far_factor = match &self.pairing.near {
            Some(near) if !is_near => near.far_factor,
            _ => 1.0,
        };
        self.costs.transfer(to.uncached) * far_factor
    }

    /// Returns the near label's value; NaN, which equals nothing, if no label is configured or the worker has
    /// none.
    fn label(&self, candidate: &Candidate<'_>) -> f64 {
        let near = self.pairing.near.as_ref();
        near.map_or(f64::NAN, |near| candidate.row.get(near.label))
    }
}

impl CheapestPrefill {
    fn add(&mut self, label: f64, cost: f64) {
        match self.find(label) {
            Ok(index) => self.near[index].1 = self.near[index].1.min(cost),
            Err(index) => self.near.insert(index, (label, cost)),
        }
    }

    /// Returns the least cost of the prefill workers with that label; infinite if there are none.
    fn near(&self, label: f64) -> f64 {
        match self.find(label) {
            Ok(index) if !label.is_nan() => self.near[index].1,
            _ => f64::INFINITY,
        }
    }

    fn find(&self, label: f64) -> Result<usize, usize> {
        self.near.binary_search_by(|(value, _)| value.total_cmp(&label))
    }
}

/// Returns the lesser number; the other one if one is NaN. It takes fewer instructions than `f64::min` does in
/// WebAssembly.
fn least(a: f64, b: f64) -> f64 {
    if b < a || a.is_nan() { b } else { a }
}
