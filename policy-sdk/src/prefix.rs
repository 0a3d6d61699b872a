//! How long a prompt is, and how much of it the candidates hold.

use crate::call::{Call, Known, Row};
use crate::params::Params;
use crate::plan::{Column, Plan, RequestNumber};
use crate::prompt_length::PromptLength;

/// Where the router lays out the length of a prompt and the longest match of each candidate on any tier. A match that is not known
/// counts as none.
#[derive(Debug, Clone, Copy)]
pub struct Prefix {
    length: PromptLength,
    best: RequestNumber,
    any: Column,
}

impl Prefix {
    /// Asks for them.
    #[must_use]
    pub fn new(plan: &mut Plan) -> Self {
        Self {
            length: PromptLength::new(plan),
            best: plan.request("prefix.best-tokens"),
            any: plan.column("prefix.any-tokens"),
        }
    }

    /// Length of the prompt in tokens, estimated from the body where it is not known.
    #[must_use]
    pub fn prompt(&self, call: &Call<'_>) -> f64 {
        self.length.of(call)
    }

    /// The longest match of any candidate, in tokens.
    #[must_use]
    pub fn best(&self, call: &Call<'_>) -> f64 {
        call.number(self.best).known_or(0.0)
    }

    /// The candidate's match, in tokens.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> f64 {
        row.get(self.any).known_or(0.0)
    }

    /// Tokens of a prompt of that length that are to be computed there.
    #[must_use]
    #[inline]
    pub fn uncached(&self, prompt: f64, row: &Row<'_>) -> f64 {
        at_least(0.0, prompt - self.matched(row))
    }
}

/// Matches by tier: tokens that need not be computed there, those of slower tiers at their worth.
#[derive(Debug, Clone, Copy)]
pub struct Tiers {
    device: Column,
    host: Column,
    any: Column,
    host_worth: f64,
    disk_worth: f64,
}

impl Tiers {
    /// Reads the parameters `host-worth` and `disk-worth`, and asks for the matches.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            device: plan.column("prefix.device-tokens"),
            host: plan.column("prefix.host-tokens"),
            any: plan.column("prefix.any-tokens"),
            host_worth: params
                .unit("share")
                .about("What a token in host memory saves of what one in device memory saves.")
                .number("host-worth", 0.75, 0.0..=1.0),
            disk_worth: params
                .unit("share")
                .about("What a token on disk saves of what one in device memory saves.")
                .number("disk-worth", 0.25, 0.0..=1.0),
        }
    }

    /// Tokens that need not be computed there, each tier's at its worth; none where that is not known.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> Option<f64> {
        let device = row.get(self.device);
        if device.is_nan() {
            return None;
        }
        let host = at_least(device, row.get(self.host));
        let any = at_least(host, row.get(self.any));
        Some(device + self.host_worth * (host - device) + self.disk_worth * (any - host))
    }
}

/// `number`, or `least` where that is more or `number` is not known: `f64::max` without the branches that its rules for NaN cost
/// a component, which has no instruction for them.
#[inline]
pub(crate) fn at_least(least: f64, number: f64) -> f64 {
    if number > least { number } else { least }
}
