//! Pairs: the prefill and the decode worker with the least cost together, or one worker for both legs where that costs no more.
//!
//! `cost(p, d) = own(p) + transfer(p, d) + crowding(d)` against `cost(w) = own(w)`; the README of the policy `pd-pairing` derives each
//! term. What a worker costs by itself is the policy's to say.

mod terms;

use crate::call::{Call, Known, Least, Phase, Row};
use crate::host::Role;
use crate::params::Params;
use crate::plan::{Column, Plan, RequestNumber};
use crate::verdict::Verdict;
use terms::Terms;
pub use terms::{Costs, Own};

/// The terms of pairs, and when one worker does it all.
#[derive(Debug, Clone)]
pub struct Pairing {
    terms: Terms,
    near: Option<Near>,
    alone: Alone,
}

/// Whom it is for. A cost is that of the whole with the worker of its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Placed {
    /// One worker, for the whole or for the part that is being placed; none where no candidate had a cost.
    One(Option<Least>),
    /// Two, for one leg each.
    Pair {
        /// Who computes the prompt.
        prefill: Least,
        /// Who answers.
        decode: Least,
    },
}

impl Placed {
    /// The row of the worker that computes the prompt, if it is computed anew.
    #[must_use]
    pub fn computes(&self) -> Option<usize> {
        match self {
            Self::One(one) => one.map(|least| least.row),
            Self::Pair { prefill, .. } => Some(prefill.row),
        }
    }

    /// The row of the worker that answers.
    #[must_use]
    pub fn answers(&self) -> Option<usize> {
        match self {
            Self::One(one) => one.map(|least| least.row),
            Self::Pair { decode, .. } => Some(decode.row),
        }
    }

    /// Sends it there.
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

/// Which pairs have a short way between them.
#[derive(Debug, Clone)]
struct Near {
    /// Equal in a near pair.
    label: Column,
    /// How much dearer the same transfer is between others; at least 1.
    far_factor: f64,
}

/// When a decode worker may do the whole of a request (conditional disaggregation).
#[derive(Debug, Clone)]
struct Alone {
    /// Where the pool allows it:
    allowed: RequestNumber,
    /// while fewer tokens than this are to be computed there,
    below_tokens: f64,
    /// and less than this share of the prompt,
    below_share: f64,
    /// and no more requests than these are decoding there.
    busy_decoding: f64,
}

/// The candidates of one request whose whole is being placed, by role.
struct Placing<'a, S> {
    pairing: &'a Pairing,
    costs: Costs<'a>,
    prefill: Vec<Candidate<'a>>,
    decode: Vec<Candidate<'a>>,
    mixed: Vec<Candidate<'a>>,
    alone_allowed: bool,
    /// What ties are broken by.
    salt: S,
}

/// A candidate and what it would do by itself.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    row: Row<'a>,
    own: Own,
}

/// The least that computing the prompt costs on any prefill worker.
struct Cheapest {
    anywhere: f64,
    /// Of those with the same value of the near label, in ascending order of the value.
    near: Vec<(f64, f64)>,
}

impl Pairing {
    /// Reads the parameters of pairs and those of [`Price`](crate::Price), and asks for the numbers.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let key = params
            .about("Key of a label: workers with equal values are near, as in a rack or a NIC group.")
            .text("near-label", "");
        let far_factor = params
            .about("How much dearer the transfer is between workers that are not near.")
            .number("far-factor", 4.0, 1.0..=1_000.0);
        Self {
            terms: Terms::configure(params, plan),
            near: (!key.is_empty()).then(|| Near {
                label: plan.label(&key),
                far_factor,
            }),
            alone: Alone {
                allowed: plan.request("request.decode-alone"),
                below_tokens: params.unit("tokens").about("A decode worker may compute fewer than these itself; 0: none while there are prefill workers.").number("alone-below-tokens", 2_048.0, 0.0..=100_000_000.0),
                below_share: params.unit("share").about("The same of the prompt; over 1: whatever is cached.").number("alone-below-share", 0.7, 0.0..=2.0),
                busy_decoding: params.unit("requests").about("Most requests decoding on a decode worker that computes a prompt.").number("busy-decoding", 16.0, 0.0..=1_000_000.0),
            },
        }
    }

    /// What the candidates of a call cost.
    #[must_use]
    pub fn costs(&self, call: &Call<'_>) -> Costs<'_> {
        self.terms.of(call)
    }

    /// Whether there are but workers that do both legs.
    fn is_whole(&self, call: &Call<'_>) -> bool {
        call.rows().all(|row| self.terms.role(&row) == Role::Mixed)
    }

    /// The least costly place for what is being placed. `own`: what a candidate would do by itself; ties are broken by `salt`.
    pub fn place<'a>(
        &'a self,
        call: &Call<'a>,
        costs: Costs<'a>,
        own: impl Fn(&Row<'a>) -> Own,
        salt: impl Fn() -> u64,
    ) -> Placed {
        match call.request().phase {
            Phase::Prefill => Placed::One(call.least(salt, |row| own(row).cost)),
            Phase::Decode => {
                let cost = |row: &Row<'a>| costs.transfer(own(row).uncached) + costs.crowding(row);
                Placed::One(call.least(salt, cost))
            }
            Phase::Mixed if self.is_whole(call) => Placed::One(call.least(salt, |row| own(row).cost)),
            Phase::Mixed => Placing::new(self, call, costs, own, salt).place(),
        }
    }
}

impl<'a, S: Fn() -> u64> Placing<'a, S> {
    fn new(
        pairing: &'a Pairing,
        call: &Call<'a>,
        costs: Costs<'a>,
        own: impl Fn(&Row<'a>) -> Own,
        salt: S,
    ) -> Self {
        let mut placing = Self {
            pairing,
            costs,
            prefill: Vec::new(),
            decode: Vec::new(),
            mixed: Vec::new(),
            alone_allowed: call.number(pairing.alone.allowed).known_or(1.0) > 0.0,
            salt,
        };
        for row in call.rows() {
            let same_role = match pairing.terms.role(&row) {
                Role::Prefill => &mut placing.prefill,
                Role::Decode => &mut placing.decode,
                Role::Mixed => &mut placing.mixed,
            };
            let own = own(&row);
            same_role.push(Candidate { row, own });
        }
        placing
    }

    /// A pair only where it costs less than one worker: fewer machines can fail one.
    fn place(&self) -> Placed {
        let alone = self
            .decode
            .iter()
            .filter(|candidate| self.may_be_alone(candidate));
        let whole = self.mixed.iter().chain(alone);
        let whole = self.least(whole.map(|candidate| (candidate.row, candidate.own.cost)));
        match self.pair() {
            Some((prefill, decode)) if whole.is_none_or(|whole| decode.cost < whole.cost) => {
                Placed::Pair { prefill, decode }
            }
            _ => Placed::One(whole),
        }
    }

    /// The least costly pair, the cost of the whole with the decode worker. A transfer has one of two prices, so
    /// that two prefill workers come into question for each decode worker: the cheapest near it, and the cheapest.
    fn pair(&self) -> Option<(Least, Least)> {
        let cheapest = self.cheapest()?;
        let decode = self.least(self.decode.iter().map(|to| {
            let anywhere = cheapest.anywhere + self.transfer(to, false);
            let near = cheapest.near(self.label(to)) + self.transfer(to, true);
            (to.row, anywhere.min(near) + self.costs.crowding(&to.row))
        }))?;
        let to = self.decode.iter().find(|to| to.row.index() == decode.row)?;
        let prefill = self.least(self.prefill.iter().map(|from| {
            let near = self.label(from) == self.label(to);
            (from.row, from.own.cost + self.transfer(to, near))
        }))?;
        Some((prefill, decode))
    }

    /// None where there is no prefill worker.
    fn cheapest(&self) -> Option<Cheapest> {
        let costs = self.prefill.iter().map(|from| from.own.cost);
        let mut cheapest = Cheapest {
            anywhere: costs.reduce(f64::min)?,
            near: Vec::new(),
        };
        if self.pairing.near.is_some() {
            for from in &self.prefill {
                cheapest.add(self.label(from), from.own.cost);
            }
        }
        Some(cheapest)
    }

    /// Conditional disaggregation: little to compute, most of it cached, and few there who would be disturbed. No
    /// condition where nothing else can compute the prompt.
    fn may_be_alone(&self, candidate: &Candidate<'_>) -> bool {
        let Alone {
            below_tokens,
            below_share,
            busy_decoding,
            ..
        } = self.pairing.alone;
        let uncached = candidate.own.uncached;
        let is_little = uncached < below_tokens && uncached < below_share * self.costs.quote().prompt();
        let is_idle = self.pairing.terms.decoding(&candidate.row) <= busy_decoding;
        self.prefill.is_empty() || self.alone_allowed && is_little && is_idle
    }

    fn least<'r>(&self, costs: impl Iterator<Item = (Row<'r>, f64)>) -> Option<Least> {
        Least::of(costs, &self.salt)
    }

    fn transfer(&self, to: &Candidate<'_>, is_near: bool) -> f64 {
        let far_factor = match &self.pairing.near {
            Some(near) if !is_near => near.far_factor,
            _ => 1.0,
        };
        self.costs.transfer(to.own.uncached) * far_factor
    }

    /// NaN, which equals nothing, where no label is named or the worker has none.
    fn label(&self, candidate: &Candidate<'_>) -> f64 {
        let near = self.pairing.near.as_ref();
        near.map_or(f64::NAN, |near| candidate.row.get(near.label))
    }
}

impl Cheapest {
    fn add(&mut self, label: f64, cost: f64) {
        match self.find(label) {
            Ok(index) => self.near[index].1 = self.near[index].1.min(cost),
            Err(index) => self.near.insert(index, (label, cost)),
        }
    }

    /// Of the prefill workers with that value; infinite where there is none.
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
