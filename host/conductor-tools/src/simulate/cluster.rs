//! The engines that the arguments mean.

use std::fs;

use anyhow::{Context as _, bail};
use routing::Role;
use simulator::{ClusterSpec, Failure, FetchRule, FittedProfile, MockerProfile, Profile, WorkerSpec};

use super::recorded::RecordedTrace;
use crate::args::{Outage, ProfileName, SimulatedClusterArgs};

/// Prompt tokens per step of a mixed worker: vLLM's default for online serving on large accelerators.
const CHUNK_TOKENS: u32 = 8_192;
/// Default number of workers.
const WORKERS: u32 = 8;

/// Largest factor between a worker's speed and the profile's.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1_000.0;

/// Returns the specification of the cluster. With a log, the workers are the log's.
pub(super) fn spec(
    args: &SimulatedClusterArgs,
    recorded: Option<&RecordedTrace>,
    block_tokens: u32,
) -> anyhow::Result<ClusterSpec> {
    if args.prefill_only && args.decode > 0 {
        bail!(
            "failed to simulate --decode {} with --prefill-only: it writes no answers",
            args.decode
        );
    }
    let blocks = |tokens: u64| usize::try_from(tokens / u64::from(block_tokens));
    let tiers = [
        blocks(args.cache_tokens)?,
        blocks(args.host_cache_tokens)?,
        blocks(args.disk_cache_tokens)?,
    ];
    if tiers[0] == 0 && tiers != [0; 3] {
        bail!(
            "failed to take --host-cache-tokens or --disk-cache-tokens: with --cache-tokens below {block_tokens}, a block, nothing is cached"
        );
    }
    let (workers, decode) = (args.workers.unwrap_or(WORKERS) as usize, args.decode as usize);
    let mut cluster = match (recorded, args.prefill_only, decode) {
        (Some(recorded), ..) => recorded.cluster(args.workers, tiers[0])?,
        (None, true, _) => ClusterSpec::prefill_only(workers, tiers[0]),
        (None, false, 0) => ClusterSpec::mixed(workers, tiers[0], None),
        (None, false, decode) => ClusterSpec::disaggregated(workers, decode, tiers[0]),
    };
    let decodes = |worker: &WorkerSpec| worker.role == Role::Decode;
    if args.decode_refuses && !cluster.workers.iter().any(decodes) {
        bail!(
            "failed to take --decode-refuses: there are no decode workers; without a log, add some with --decode"
        );
    }
    let does_all = cluster.decode && cluster.workers.iter().all(|worker| worker.role == Role::Mixed);
    let chunk = if does_all { CHUNK_TOKENS } else { 0 };
    cluster.chunk_tokens = Some(args.chunk_tokens.unwrap_or(chunk)).filter(|tokens| *tokens > 0);
    cluster.step_prompts = args.step_prompts.map(|prompts| prompts as usize);
    cluster.fetch = args.fetch.0;
    let mut cluster = cluster.with_profile(profile(args, recorded)?);
    for worker in &mut cluster.workers {
        // A decode worker without a cache on its device has none below it.
        if worker.cache_blocks[0] > 0 {
            worker.cache_blocks = tiers;
        }
    }
    set_speeds(&mut cluster, &args.worker_speeds)?;
    Ok(cluster)
}

fn set_speeds(cluster: &mut ClusterSpec, speeds: &[f64]) -> anyhow::Result<()> {
    if speeds.is_empty() {
        return Ok(());
    }
    if speeds.len() != cluster.workers.len() {
        bail!(
            "failed to take --worker-speeds: it has {}, and there are {} workers; give one for each, the decode workers last",
            speeds.len(),
            cluster.workers.len()
        );
    }
    for (worker, speed) in cluster.workers.iter_mut().zip(speeds) {
        if !SPEEDS.contains(speed) {
            bail!(
                "failed to take --worker-speeds: {speed} is not from {} to {}",
                SPEEDS.start(),
                SPEEDS.end()
            );
        }
        worker.speed = *speed;
    }
    Ok(())
}

fn profile(args: &SimulatedClusterArgs, recorded: Option<&RecordedTrace>) -> anyhow::Result<Profile> {
    let path = match &args.profile {
        ProfileName::Log => return of_log(args, recorded),
        ProfileName::Paper => return Ok(Profile::default()),
        ProfileName::Mocker => return Ok(Profile::Mocker(MockerProfile::default())),
        ProfileName::File(path) => path,
    };
    let attempt = || {
        format!(
            "failed to read the profile `{}` (--profile is `paper`, `mocker`, or a file)",
            path.display()
        )
    };
    let text = fs::read_to_string(path).with_context(attempt)?;
    Ok(Profile::Fitted(
        FittedProfile::from_json(&text).with_context(attempt)?,
    ))
}

/// Returns the profile fitted to the log. A router sees neither the time of a transfer nor the place from which a
/// cached block is loaded.
fn of_log(args: &SimulatedClusterArgs, recorded: Option<&RecordedTrace>) -> anyhow::Result<Profile> {
    let Some(profile) = recorded.and_then(RecordedTrace::profile) else {
        bail!("failed to take --profile log: there is no --log");
    };
    if args.fetch.0 != FetchRule::Off || args.host_cache_tokens > 0 || args.disk_cache_tokens > 0 {
        bail!(
            "failed to take --fetch, --host-cache-tokens or --disk-cache-tokens: a log has no costs of these; give another --profile"
        );
    }
    Ok(profile)
}

/// Returns the failures of so many workers.
pub(super) fn failures(args: &SimulatedClusterArgs, workers: usize) -> anyhow::Result<Vec<Failure>> {
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let failure = |outage: &Outage| {
        if outage.worker >= workers {
            bail!(
                "failed to take --fail {outage}: there is no worker {}; there are {workers}, counted from 0",
                outage.worker
            );
        }
        Ok(Failure {
            worker: outage.worker,
            at_us: micros(outage.at_s),
            back_us: outage.back_s.map(micros),
        })
    };
    let mut failures: Vec<Failure> = args.failures.iter().map(failure).collect::<anyhow::Result<_>>()?;
    failures.sort_by_key(|failure| (failure.worker, failure.at_us));
    for pair in failures.windows(2) {
        let is_away = pair[0].back_us.is_none_or(|back_us| back_us >= pair[1].at_us);
        if pair[0].worker == pair[1].worker && is_away {
            bail!(
                "failed to take --fail: worker {} fails twice, and must be back before it fails again",
                pair[0].worker
            );
        }
    }
    Ok(failures)
}
