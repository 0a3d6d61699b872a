//! The trace, the cluster and the limits that the arguments mean.

use std::fs;

use anyhow::{Context as _, anyhow, bail};
use simulator::{ClusterSpec, FetchRule, Knowledge, Limits, RunSpec, Trace, TraceFacts};

use crate::cli::SimulateArgs;

/// The longest trace that is simulated.
const MOST_DAYS: f64 = 30.0;

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Setting {
    /// At the speed of its recording.
    pub(super) trace: Trace,
    pub(super) facts: TraceFacts,
    pub(super) spec: RunSpec,
}

impl Setting {
    pub(super) fn of(args: &SimulateArgs) -> anyhow::Result<Self> {
        if let Some(bad) = args
            .speeds
            .iter()
            .find(|speed| !(speed.is_finite() && **speed > 0.0))
        {
            bail!("failed to play a trace at the speed {bad}: it must be above 0");
        }
        let trace = trace(args)?;
        if trace.requests.is_empty() {
            bail!("failed to simulate `{}`: it has no requests", trace.name);
        }
        let slowest = args.speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let days = trace.duration_us() as f64 / slowest / 86_400e6;
        if days > MOST_DAYS {
            bail!(
                "failed to simulate `{}`: at x{slowest} it takes {days:.0} days, and at most {MOST_DAYS} are simulated",
                trace.name
            );
        }
        let mut spec = RunSpec::of(cluster(args, trace.block_tokens)?);
        spec.limits = Limits {
            ttft_us: micros("--ttft-limit-s", args.ttft_limit_s * 1e6)?,
            tbt_us: micros("--tbt-limit-ms", args.tbt_limit_ms * 1e3)?,
        };
        spec.router.seed = args.seed;
        spec.router.knowledge = Knowledge::Events {
            lag_us: args.event_lag_ms * 1_000,
            loss: 0.0,
        };
        Ok(Self {
            facts: TraceFacts::of(&trace),
            trace,
            spec,
        })
    }
}

fn trace(args: &SimulateArgs) -> anyhow::Result<Trace> {
    let mut trace = match &args.trace {
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("failed to read the trace `{}`", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            Trace::from_mooncake(&name, &text)
                .map_err(|error| anyhow!("failed to read the trace `{}`: {error}", path.display()))?
        }
        None => {
            let mut options = args.mix.usual(args.seed);
            options.requests = args
                .requests
                .map_or(options.requests, |requests| requests as usize);
            args.mix.generate(&options)
        }
    };
    if let Some(requests) = args.requests {
        trace = trace.first(requests as usize);
    }
    if args.spread {
        trace.spread(args.seed);
    }
    Ok(trace)
}

fn cluster(args: &SimulateArgs, block_tokens: u32) -> anyhow::Result<ClusterSpec> {
    let blocks = usize::try_from(args.cache_tokens / u64::from(block_tokens))?;
    let (workers, decode) = (args.workers as usize, args.decode as usize);
    let mut cluster = match (args.prefill_only, decode) {
        (true, _) => ClusterSpec::prefill_only(workers, blocks),
        (false, 0) => ClusterSpec::mixed(workers, blocks, Some(CHUNK_TOKENS)),
        (false, decode) => ClusterSpec::disaggregated(workers, decode, blocks),
    };
    cluster.fetch = fetch(&args.fetch)?;
    Ok(cluster)
}

/// What a mixed worker's step takes of prompts: vLLM's default for online serving on large accelerators.
const CHUNK_TOKENS: u32 = 8_192;

fn fetch(text: &str) -> anyhow::Result<FetchRule> {
    match text {
        "off" => Ok(FetchRule::Off),
        "cheapest" => Ok(FetchRule::Cheapest),
        ratio => {
            let ratio: f64 = ratio.parse().unwrap_or(f64::NAN);
            if ratio.is_nan() || ratio < 1.0 {
                bail!(
                    "failed to understand --fetch `{text}`: it is `off`, `cheapest`, or a ratio of at least 1"
                );
            }
            Ok(FetchRule::Ratio(ratio))
        }
    }
}

fn micros(option: &str, value: f64) -> anyhow::Result<u64> {
    if !(1.0..1e12).contains(&value) {
        bail!("failed to take {option}: it must be at least a microsecond and less than eleven days");
    }
    Ok(value as u64)
}
