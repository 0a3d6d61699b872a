//! Workers and clusters under round costs: a millisecond for a token of a prompt and another for every prompt, ten for
//! a step.

mod answers;
mod any_load;
mod cluster;
mod pool;
mod prompts;

use routing::Role;

use super::{Cluster, EngineEvent, EngineEventKind, Fetch, Job, JobKind};
use crate::profile::{FittedProfile, Profile};
use crate::spec::{CacheTiming, ClusterSpec, QueueOrder, Transfers, WorkerSpec};

const MS: u64 = 1_000;
/// Tokens of a block.
const BLOCK: u32 = 10;

/// A millisecond moves ten tokens between workers, loads a hundred from host memory, and adds a microsecond of a step
/// for a resident one.
fn profile() -> Profile {
    Profile::Fitted(FittedProfile {
        prefill_ms: [1.0, 1_000.0, 0.0],
        transfer_ms: [0.0, 100.0],
        step_ms: [10.0, 0.0, 1.0],
        host_ms: 10.0,
        disk_ms: 2_000.0,
        kv_tokens: 1_000,
        link_gbps: 100.0,
    })
}

/// Returns so many workers for everything, whose caches hold 100 blocks.
fn mixed(workers: usize) -> ClusterSpec {
    let profile = profile();
    ClusterSpec {
        workers: vec![WorkerSpec::of(&profile, Role::Mixed, 100); workers],
        profile,
        ..ClusterSpec::mixed(0, 0, None)
    }
}

/// Returns the same workers, where a request ends with its first token.
fn prefill_only(workers: usize) -> ClusterSpec {
    ClusterSpec {
        decode: false,
        ..mixed(workers)
    }
}

/// Returns a request for one token, with a prompt of these blocks.
fn job(request: usize, blocks: &[u64]) -> Job {
    Job {
        request,
        arrived_us: 0,
        prompt_tokens: BLOCK * blocks.len() as u32,
        output_tokens: 1,
        blocks: blocks.into(),
        grown_blocks: Box::default(),
        kind: JobKind::Whole,
        fetch: None,
    }
}

/// Runs the cluster to its end. Returns all events, but for changes of caches.
fn finish(cluster: &mut Cluster) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    while let Some(at_us) = cluster.next_at() {
        cluster.advance(at_us, &mut events);
    }
    events.retain(|event| !matches!(event.kind, EngineEventKind::Cache(_)));
    events
}

/// Returns the requests with the times of their first tokens here, in milliseconds.
fn first_tokens(events: &[EngineEvent]) -> Vec<(usize, u64)> {
    let firsts = events.iter().filter_map(|event| match event.kind {
        EngineEventKind::FirstToken { request } => Some((request, event.at_us / MS)),
        _ => None,
    });
    firsts.collect()
}

/// Returns the requests with the times at which their prompts were computed, in milliseconds, and the reused tokens.
fn computed(events: &[EngineEvent]) -> Vec<(usize, u64, u32)> {
    let prompts = events.iter().filter_map(|event| match event.kind {
        EngineEventKind::PrefillDone { request, reuse } => Some((request, event.at_us / MS, reuse.tokens())),
        _ => None,
    });
    prompts.collect()
}
