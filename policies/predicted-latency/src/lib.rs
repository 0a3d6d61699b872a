//! Policy: predicted latencies against the request's service levels (llm-d): filters by cached prefix and by headroom,
//! scores by headroom, and a draw by score.
//!
//! README.md defines the stages and lists the differences from llm-d, whose predictor is replaced by the router's.

mod headroom;

use conductor_policy_sdk::{
    Call, CallForecast, Column, Forecast, Host, OptionalNumber, Params, Phase, Plan, Policy, Row, Verdict,
    export_policy,
};

use headroom::{Headroom, HeadroomScore};

/// Header with the limit of the time to first token, in milliseconds.
const TTFT_HEADER: &str = "x-slo-ttft-ms";
/// Header with the limit of the time between tokens, in milliseconds.
const TPOT_HEADER: &str = "x-slo-tpot-ms";

/// Policy: predicted latencies against service levels.
#[derive(Debug)]
pub struct PredictedLatency {
    forecast: Forecast,
    score: HeadroomScore,
    affinity: AffinityFilter,
    tbt_ms: Column,
    requests: Column,
    queued: Column,
    kv_usage: Column,
    /// Default limits in milliseconds; 0 for none.
    default_limits: Limits,
    /// True if the candidate is drawn by its score; else the best is chosen.
    draws: bool,
}

/// Service levels of a request, in milliseconds; 0 for none. A headroom without a limit is below 0.
#[derive(Debug, Clone, Copy)]
struct Limits {
    ttft_ms: f64,
    tpot_ms: f64,
}

/// Filter that keeps the candidates with most of the prompt.
#[derive(Debug, Clone, Copy)]
struct AffinityFilter {
    /// Share of the prompt before the candidates are divided by headroom.
    strict_share: f64,
    /// Share of the prompt afterwards.
    loose_share: f64,
    /// Share of the requests that skip a filter.
    explore: f64,
    /// Largest predicted delay that affinity may cost, in milliseconds.
    most_delay_ms: f64,
}

/// Candidate with its predictions.
#[derive(Debug, Clone, Copy)]
struct Candidate<'c> {
    row: Row<'c>,
    matched: f64,
    ttft_ms: f64,
    headroom: Headroom,
}

impl Policy for PredictedLatency {
    const NAME: &'static str = "predicted-latency";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            forecast: Forecast::configure(params, plan),
            score: HeadroomScore::configure(params),
            affinity: AffinityFilter::configure(params),
            tbt_ms: plan.column("cost.tbt-ms"),
            requests: plan.column("load.requests"),
            queued: plan.column("load.queued"),
            kv_usage: plan.column("engine.kv-usage"),
            default_limits: Limits {
                ttft_ms: params
                    .unit("milliseconds")
                    .about("Limit of the time to first token of requests without the header x-slo-ttft-ms, which `policy-headers` has to list; 0: none.")
                    .number("ttft-ms", 0.0, 0.0..=86_400_000.0),
                tpot_ms: params
                    .unit("milliseconds")
                    .about("Limit of the time between tokens of requests without the header x-slo-tpot-ms, which `policy-headers` has to list; 0: none.")
                    .number("tpot-ms", 0.0, 0.0..=86_400_000.0),
            },
            draws: params
                .about("Choice by a draw with the scores as weights, or of the best score.")
                .choice("pick", ("weighted", true), &[("best", false)]),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let forecast = self.forecast.of(call);
        // An overhead is in tokens, and 0 if the unit is predicted milliseconds.
        let is_predicted = call.rows().all(|row| match call.request().phase {
            Phase::Decode => row.get(self.tbt_ms) >= 0.0,
            Phase::Mixed | Phase::Prefill => forecast.overhead(&row, 1.0) == 0.0,
        });
        if !is_predicted {
            let longest = call.greatest(|row| row.get(self.queued));
            let scores: Vec<f64> = call
                .rows()
                .map(|row| self.composite(longest, &forecast, &row))
                .collect();
            return self.pick(host, call.rows().map(|row| row.index()).zip(scores).collect());
        }
        let limits = self.limits(host);
        let all: Vec<Candidate<'_>> = call
            .rows()
            .map(|row| self.candidate(call, &forecast, limits, row))
            .collect();
        let prompt = forecast.prompt();
        let strict = self.affinity.keep(host, all, prompt, self.affinity.strict_share);
        let tier = self.tier(host, strict);
        let loose = self.affinity.keep(host, tier, prompt, self.affinity.loose_share);
        let is_idle = |candidate: &Candidate<'_>| candidate.row.get(self.requests) == 0.0;
        let is_late = loose.iter().all(|candidate| candidate.headroom.is_negative());
        let scored = match is_late && loose.iter().any(is_idle) {
            true => loose.into_iter().filter(is_idle).collect(),
            false => loose,
        };
        let headrooms: Vec<Headroom> = scored.iter().map(|candidate| candidate.headroom).collect();
        let rows = scored.iter().map(|candidate| candidate.row.index());
        self.pick(host, rows.zip(self.score.of(&headrooms)).collect())
    }
}

impl PredictedLatency {
    /// Returns the limits of the request: those of its headers, else the configured ones.
    fn limits(&self, host: &impl Host) -> Limits {
        let header = |name: &str| {
            let number: u32 = host.header(name)?.trim().parse().ok()?;
            (number > 0).then_some(number.into())
        };
        Limits {
            ttft_ms: header(TTFT_HEADER).unwrap_or(self.default_limits.ttft_ms),
            tpot_ms: header(TPOT_HEADER).unwrap_or(self.default_limits.tpot_ms),
        }
    }

    fn candidate<'c>(
        &self,
        call: &Call<'c>,
        forecast: &CallForecast,
        limits: Limits,
        row: Row<'c>,
    ) -> Candidate<'c> {
        let is_decode = call.request().phase == Phase::Decode;
        let ttft_ms = if is_decode {
            0.0
        } else {
            forecast.queue(&row) + forecast.prefill(&row)
        };
        let tpot_ms = match call.request().phase {
            Phase::Prefill => 0.0,
            // Unknown at first: the same for all.
            Phase::Mixed | Phase::Decode => row.get(self.tbt_ms).known_or(0.0),
        };
        Candidate {
            row,
            matched: forecast.matched(&row),
            ttft_ms,
            headroom: Headroom {
                ttft_ms: limits.ttft_ms - ttft_ms,
                tpot_ms: limits.tpot_ms - tpot_ms,
            },
        }
    }

    /// Keeps the candidates that meet both limits, if there are any; a few requests explore the others.
    fn tier<'c>(&self, host: &impl Host, all: Vec<Candidate<'c>>) -> Vec<Candidate<'c>> {
        let is_good = |candidate: &Candidate<'_>| !candidate.headroom.is_negative();
        let good = all.iter().filter(|candidate| is_good(candidate)).count();
        if good == 0 || good == all.len() {
            return all;
        }
        let wants_good = share(host) >= self.affinity.explore;
        all.into_iter()
            .filter(|candidate| is_good(candidate) == wants_good)
            .collect()
    }

    /// Returns the score of a candidate without predictions: free memory, short queue and cached prefix. `longest` is
    /// the longest queue of all.
    fn composite(&self, longest: f64, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        let queue = if longest > 0.0 {
            1.0 - row.get(self.queued) / longest
        } else {
            1.0
        };
        let free = 1.0 - row.get(self.kv_usage).known_or(0.0);
        let cached = match forecast.prompt() > 0.0 {
            true => forecast.matched(row) / forecast.prompt(),
            false => 0.0,
        };
        (queue + free + cached) / 3.0
    }

    fn pick(&self, host: &impl Host, scored: Vec<(usize, f64)>) -> Verdict {
        let best = || {
            let better = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
            scored.iter().copied().reduce(better)
        };
        let chosen = if self.draws {
            drawn(host, &scored).or_else(best)
        } else {
            best()
        };
        chosen.map_or(Verdict::Pass, |(row, score)| Verdict::Route { row, score })
    }
}

impl AffinityFilter {
    fn configure(params: &mut Params) -> Self {
        Self {
            strict_share: params
                .unit("share")
                .about("Cached share of the prompt that a candidate needs if another has it, before the limits count.")
                .number("strict-share", 0.99, 0.0..=1.0),
            loose_share: params
                .unit("share")
                .about("The same among the candidates that meet the limits.")
                .number("loose-share", 0.8, 0.0..=1.0),
            explore: params
                .unit("share")
                .about("Share of the requests that skip a filter.")
                .number("explore", 0.01, 0.0..=1.0),
            most_delay_ms: params
                .unit("milliseconds")
                .about("Largest delay of the first token that following a cached prefix may cost; 0: no limit.")
                .number("most-delay-ms", 5_000.0, 0.0..=86_400_000.0),
        }
    }

    /// Keeps the candidates with that share of the prompt, if there are any and they are not much slower.
    fn keep<'c>(
        &self,
        host: &impl Host,
        all: Vec<Candidate<'c>>,
        prompt: f64,
        least_share: f64,
    ) -> Vec<Candidate<'c>> {
        let has_prefix =
            |candidate: &Candidate<'_>| prompt > 0.0 && candidate.matched >= least_share * prompt;
        let fastest = |of: &mut dyn Iterator<Item = &Candidate<'c>>| {
            of.map(|candidate| candidate.ttft_ms)
                .fold(f64::INFINITY, f64::min)
        };
        let with_prefix = fastest(&mut all.iter().filter(|candidate| has_prefix(candidate)));
        let delay_ms = with_prefix - fastest(&mut all.iter());
        let is_slow = self.most_delay_ms > 0.0 && delay_ms > self.most_delay_ms;
        if with_prefix.is_infinite() || is_slow || share(host) < self.explore {
            return all;
        }
        all.into_iter().filter(has_prefix).collect()
    }
}

/// Draws a candidate with the scores as weights; none if no score is above 0.
fn drawn(host: &impl Host, scored: &[(usize, f64)]) -> Option<(usize, f64)> {
    let whole: f64 = scored.iter().map(|(_, score)| score).sum();
    let mut left = share(host) * whole;
    scored.iter().copied().find(|(_, score)| {
        left -= score;
        left < 0.0
    })
}

/// Returns a random number from 0 to 1, without 1.
fn share(host: &impl Host) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (host.random() >> 11) as f64 / STEPS
}

export_policy!(PredictedLatency);

#[cfg(test)]
mod tests;
