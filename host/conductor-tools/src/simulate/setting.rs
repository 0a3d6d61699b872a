//! The trace, the cluster and the limits that the arguments mean.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use routing::Role;
use serde::Serialize;
use simulator::{
    ClusterSpec, CostSource, FetchRule, Knowledge, LatencyTargets, QueueOrder, QueueSpec, RouterSpec,
    RunSpec, Trace, TraceFacts, WorkerSpec,
};

use super::recorded::RecordedTrace;
use super::source::Source;
use super::{cluster, sharing};
use crate::args::{
    ArrivalKind, Costs, KnowledgeKind, OrderKind, SimulateArgs, SimulatedClusterArgs, SimulatedRouterArgs,
};

/// Maximum length of a simulated trace.
const MOST_DAYS: f64 = 30.0;

/// Setting of all runs.
#[derive(Debug)]
pub(super) struct Setting {
    /// Source of the requests of each seed.
    pub(super) source: Source,
    /// Requests of the first seed, at their recorded speed.
    pub(super) trace: Arc<Trace>,
    pub(super) facts: TraceFacts,
    pub(super) spec: RunSpec,
    /// Routers that each have a policy of their own.
    pub(super) replicas: usize,
    pub(super) report: SettingReport,
}

/// Setting of a report: the options that make it again, but for the policies and the speeds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SettingReport {
    version: &'static str,
    /// The file; none: made up.
    trace: Option<PathBuf>,
    /// The files of a decision log, and which of its pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// Arrivals of the requests of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrivals: Option<ArrivalKind>,
    /// Kind of the generated requests, if they are generated.
    mix: Option<&'static str>,
    requests: usize,
    spread: bool,
    seed: u64,
    ttft_limit_s: f64,
    tbt_limit_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<u32>,
    /// True if the predicted prefill times contain the fetches of prefixes.
    pub(super) costs_contain_fetches: bool,
    #[serde(flatten)]
    cluster: SimulatedClusterArgs,
    #[serde(flatten)]
    router: SimulatedRouterArgs,
}

impl Setting {
    pub(super) fn of(args: &SimulateArgs, recorded: Option<&RecordedTrace>) -> anyhow::Result<Self> {
        if let Some(bad) = args
            .speeds
            .iter()
            .find(|speed| !(speed.is_finite() && **speed > 0.0))
        {
            bail!("failed to play a trace at the speed {bad}: it must be above 0");
        }
        let source = Source::of(args, recorded)?;
        let trace = source.trace(args.seed);
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
        let mut spec = RunSpec::of(cluster::spec(&args.cluster, recorded, trace.block_tokens)?);
        spec.limits = LatencyTargets {
            ttft_us: micros("--ttft-limit-s", args.ttft_limit_s * 1e6)?,
            tbt_us: micros("--tbt-limit-ms", args.tbt_limit_ms * 1e3)?,
        };
        spec.cluster.order = match args.cluster.order {
            OrderKind::Fifo => QueueOrder::Fifo,
            OrderKind::Shortest => QueueOrder::Shortest,
            OrderKind::ShortestLeft => QueueOrder::ShortestLeft,
            OrderKind::SlackGuarded => QueueOrder::SlackGuarded {
                limit_us: spec.limits.ttft_us,
            },
        };
        if args.cluster.decode_refuses {
            spec.cluster.decode_refuses_over_us = Some(spec.limits.tbt_us);
        }
        spec.failures = cluster::failures(&args.cluster, spec.cluster.workers.len())?;
        spec.router = router(&args.router, &spec.cluster, args.seed)?;
        Ok(Self {
            facts: TraceFacts::of(&trace),
            report: SettingReport::of(args, &trace, &spec),
            source,
            trace,
            spec,
            replicas: args.router.replicas as usize,
        })
    }
}

impl SettingReport {
    fn of(args: &SimulateArgs, trace: &Trace, spec: &RunSpec) -> Self {
        let mut cluster = args.cluster.clone();
        let decode = |worker: &&WorkerSpec| worker.role == Role::Decode;
        let decode = spec.cluster.workers.iter().filter(decode).count();
        cluster.workers = u32::try_from(spec.cluster.workers.len() - decode).ok();
        cluster.decode = u32::try_from(decode).unwrap_or(cluster.decode);
        cluster.chunk_tokens = Some(spec.cluster.chunk_tokens.unwrap_or(0));
        cluster.worker_speeds = spec.cluster.workers.iter().map(|worker| worker.speed).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            trace: args.trace.clone(),
            log: args.log.clone(),
            pool: args.pool.clone(),
            arrivals: (!args.log.is_empty()).then_some(args.arrivals),
            mix: (args.trace.is_none() && args.log.is_empty()).then_some(args.mix.name()),
            requests: trace.requests.len(),
            spread: args.spread,
            seed: args.seed,
            ttft_limit_s: args.ttft_limit_s,
            tbt_limit_ms: args.tbt_limit_ms,
            tenants: args.tenants,
            costs_contain_fetches: spec.cluster.fetch != FetchRule::Off
                && !matches!(args.router.costs, Costs::Learned),
            cluster,
            router: args.router.clone(),
        }
    }
}

/// Assumed lifetime of cached prompts: the server's default of `assume-cache.for`.
const ASSUMED_US: u64 = 120_000_000;

fn router(args: &SimulatedRouterArgs, cluster: &ClusterSpec, seed: u64) -> anyhow::Result<RouterSpec> {
    let has_events = args.knowledge == KnowledgeKind::Events;
    if !(0.0..=1.0).contains(&args.event_loss) {
        bail!(
            "failed to take --event-loss {}: it is a share, from 0 to 1",
            args.event_loss
        );
    }
    if !has_events && (args.event_loss > 0.0 || args.event_lag_ms > 0) {
        bail!("failed to take --event-lag-ms or --event-loss: events are only known with --knowledge events");
    }
    let timeout_us = match args.queue_timeout_s {
        0.0 => 0,
        seconds => micros("--queue-timeout-s", seconds * 1e6)?,
    };
    Ok(RouterSpec {
        knowledge: match args.knowledge {
            KnowledgeKind::None => Knowledge::None,
            KnowledgeKind::Events => Knowledge::Events {
                lag_us: args.event_lag_ms * 1_000,
                loss: args.event_loss,
            },
            KnowledgeKind::Assumed => Knowledge::Assumed {
                lifetime_us: ASSUMED_US,
            },
        },
        costs: match args.costs {
            Costs::Learned => CostSource::Learned,
            Costs::Exact => CostSource::Exact(cluster.profile.clone()),
            Costs::Wrong(sigma) => CostSource::Wrong { sigma },
        },
        queue: QueueSpec {
            limit: args.queue as usize,
            timeout_us,
        },
        seed,
        sharing: sharing::spec(args)?,
        deaths: sharing::deaths(args)?,
        balance: sharing::balance(args),
        ..RouterSpec::default()
    })
}

fn micros(option: &str, value: f64) -> anyhow::Result<u64> {
    if !(1.0..1e12).contains(&value) {
        bail!("failed to take {option}: it must be at least a microsecond and less than eleven days");
    }
    Ok(value as u64)
}
