//! Prompt length and prefix matches of the candidates.

use crate::call::{Call, OptionalNumber, Row};
use crate::lanes::{Number, NumberMask, Numbers};
use crate::params::Params;
use crate::plan::{Column, Plan, RequestNumber};
use crate::prompt_length::PromptLength;

/// Prompt length and the candidates' longest matches on any tier. An unknown match counts as 0.
#[derive(Debug, Clone, Copy)]
pub struct PrefixMatches {
    length: PromptLength,
    best: RequestNumber,
    any: Column,
}

impl PrefixMatches {
    /// Requests the numbers.
    #[must_use]
    pub fn new(plan: &mut Plan) -> Self {
        Self {
            length: PromptLength::new(plan),
            best: plan.request("prefix.best-tokens"),
            any: plan.column("prefix.any-tokens"),
        }
    }

    /// Returns the prompt length in tokens, estimated from the body if it is unknown.
    #[must_use]
    pub fn prompt(&self, call: &Call<'_>) -> f64 {
        self.length.of(call)
    }

    /// Returns the longest match of any candidate, in tokens.
    #[must_use]
    pub fn best(&self, call: &Call<'_>) -> f64 {
        call.number(self.best).known_or(0.0)
    }

    /// Returns the candidate's match, in tokens.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> f64 {
        row.get(self.any).known_or(0.0)
    }

    /// Returns the tokens of a prompt of that length that the candidate must compute.
    #[must_use]
    #[inline]
    pub fn uncached(&self, prompt: f64, row: &Row<'_>) -> f64 {
        at_least(0.0, prompt - self.matched(row))
    }
}

/// Prefix matches by tier; tokens on slower tiers count at their worth.
#[derive(Debug, Clone, Copy)]
pub struct TierMatches {
    device: Column,
    host: Column,
    any: Column,
    host_worth: f64,
    disk_worth: f64,
}

impl TierMatches {
    /// Reads the parameters `host-worth` and `disk-worth` and requests the matches.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            device: plan.column("prefix.device-tokens"),
            host: plan.column("prefix.host-tokens"),
            any: plan.column("prefix.any-tokens"),
            host_worth: params
                .unit("share")
                .about("Worth of a token cached in host memory, relative to device memory.")
                .number("host-worth", 0.75, 0.0..=1.0),
            disk_worth: params
                .unit("share")
                .about("Worth of a token cached on disk, relative to device memory.")
                .number("disk-worth", 0.25, 0.0..=1.0),
        }
    }

    /// Returns the cached tokens, weighted by tier; none if the match is unknown.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> Option<f64> {
        let device = row.get(self.device);
        (!device.is_nan()).then(|| self.weighted([device, row.get(self.host), row.get(self.any)]))
    }

    /// Returns the cached tokens, weighted by tier; NaN if the match is unknown.
    #[inline(always)]
    pub(crate) fn matched_or_nan<R: Numbers>(&self, row: &R) -> R::Number {
        self.weighted([self.device, self.host, self.any].map(|column| row.number(column)))
    }

    /// Returns the cached tokens, weighted by tier, from the matches of each; NaN if the first is NaN.
    #[inline(always)]
    pub(crate) fn weighted<N: Number>(&self, [device, host, any]: [N; 3]) -> N {
        // Most fleets have one tier.
        if (host.equals(device) & any.equals(device)).all() {
            return device;
        }
        let host = host.at_least(device);
        let any = any.at_least(host);
        let on_host = N::from(self.host_worth) * (host - device);
        let on_disk = N::from(self.disk_worth) * (any - host);
        device + on_host + on_disk
    }
}

/// Returns `number`, or `least` if that is greater or `number` is NaN.
///
/// `f64::max` compiles to extra branches for NaN, because WebAssembly has no instruction with its semantics.
#[inline]
pub(crate) fn at_least(least: f64, number: f64) -> f64 {
    if number > least { number } else { least }
}
