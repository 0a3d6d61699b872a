//! Cached tokens of a prompt at each candidate: held there, fetched from the best holder, or assumed at a home.

use std::cell::OnceCell;

use conductor_policy_sdk::{
    Call, Column, Lanes, Number, NumberMask, OptionalNumber, Plan, Quote, RequestNumber, RowPair, WorkerId,
};

use crate::workers::WorkerColumns;

/// Share of the prompt that its home is assumed to hold while the router knows no cache.
const HOME_SHARE: f64 = 0.75;

/// Columns of the cached tokens.
#[derive(Debug)]
pub(crate) struct CachedColumns {
    best: RequestNumber,
    /// Hash of the prompt's beginning. It skips prefixes that all prompts share, such as a system prompt.
    beginning: RequestNumber,
    fetched_share: Column,
    /// Cost of a fetched token, in computed ones.
    transfer_cost: f64,
}

/// Cached tokens of one call.
#[derive(Debug)]
pub(crate) struct CachedTokens<'a> {
    call: &'a Call<'a>,
    workers: &'a WorkerColumns,
    quote: Quote<'a>,
    best: f64,
    /// Share of the tokens held elsewhere that need not be computed, less the cost of their transfer.
    fetched: f64,
    /// Hash of the session, else of the prompt's beginning.
    home_of: Option<u64>,
    /// Computed on first use; never needed with a live index.
    home: OnceCell<Option<WorkerId>>,
}

impl CachedColumns {
    pub(crate) fn new(plan: &mut Plan, transfer_cost: f64) -> Self {
        plan.name_hash();
        Self {
            best: plan.request("prefix.best-tokens"),
            beginning: plan.request("prefix.key-1024"),
            fetched_share: plan.column("cost.fetched-share"),
            transfer_cost,
        }
    }

    /// Returns the cached tokens of a call. Workers without answers that show their fetches are taken to fetch as the
    /// others do.
    pub(crate) fn of<'a>(
        &self,
        workers: &'a WorkerColumns,
        call: &'a Call<'a>,
        quote: Quote<'a>,
    ) -> CachedTokens<'a> {
        let (sum, count) = call.known_sum(self.fetched_share);
        let fetched = if count > 0.0 { sum / count } else { 0.0 };
        let beginning = call.number(self.beginning);
        CachedTokens {
            call,
            workers,
            quote,
            best: call.number(self.best).known_or(0.0),
            fetched: fetched * (1.0 - self.transfer_cost).max(0.0),
            home_of: call
                .request()
                .session
                .or_else(|| (beginning >= 0.0).then(|| beginning.to_bits())),
            home: OnceCell::new(),
        }
    }
}

impl CachedTokens<'_> {
    /// Returns the tokens of the prompt that the two candidates need not compute.
    #[inline(always)]
    pub(crate) fn get(&self, rows: &RowPair<'_>) -> Lanes {
        let own = self.quote.weighted_matches(self.workers.matches(rows));
        let best = Lanes::from(self.best);
        let known = match self.fetched > 0.0 {
            true => {
                let fetched = own + Lanes::from(self.fetched) * (best - own);
                Lanes::select(best.exceeds(own), fetched, own)
            }
            false => own,
        };
        match own.equals(own).all() {
            true => known,
            false => self.assumed(rows, known),
        }
    }

    /// Replaces unknown tokens, which are NaN, by assumed ones.
    #[cold]
    fn assumed(&self, rows: &RowPair<'_>, tokens: Lanes) -> Lanes {
        let [first, second] = rows.ids();
        let assumed = |tokens: f64, id: WorkerId| match self.home() == Some(id) {
            _ if !tokens.is_nan() => tokens,
            true => HOME_SHARE * self.quote.prompt(),
            false => 0.0,
        };
        let [of_first, of_second] = tokens.into();
        Lanes::from([assumed(of_first, first), assumed(of_second, second)])
    }

    /// Finds the home of the session or of the prompt's beginning ([`Call::home`]).
    fn home(&self) -> Option<WorkerId> {
        *self.home.get_or_init(|| self.call.home(self.home_of?))
    }
}
