//! Costs of this machine: the yardsticks beside every figure.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::random::Random;

const LINE: usize = 64;
const CHASE_BYTES: usize = 512 << 20;
const CHASE_STEPS: u32 = 2_000_000;
const HASHES: u32 = 4_000_000;

/// The yardsticks, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// One load whose address the one before it gave, in 512 MiB.
    pub(crate) load: f64,
    /// XXH3-64 of 64 bytes: the tokens of one block of 16.
    pub(crate) hash: f64,
    /// Reading the clock twice.
    pub(crate) clock: f64,
    /// Reading the processor's clock twice.
    pub(crate) processor_clock: f64,
}

impl Machine {
    /// Returns the best of three, as other programs only ever make it worse.
    pub(crate) fn measure() -> Self {
        let best = |measure: fn() -> f64| (0..3).map(|_| measure()).fold(f64::INFINITY, f64::min);
        Self {
            load: best(dependent_load),
            hash: best(block_hash),
            clock: best(clock),
            processor_clock: best(processor_clock),
        }
    }
}

/// Measures a dependent load: follows one random cycle through all cache lines of a buffer (Sattolo's shuffle).
fn dependent_load() -> f64 {
    let lines = CHASE_BYTES / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = Random::new(7);
    for at in (1..lines).rev() {
        order.swap(at, random.below(at as u64) as usize);
    }
    let words = LINE / size_of::<u32>();
    let mut next = vec![0_u32; lines * words];
    for pair in order.windows(2) {
        next[pair[0] as usize * words] = pair[1];
    }
    next[order[lines - 1] as usize * words] = order[0];
    drop(order);
    let mut at = 0;
    let start = processor_time();
    for _ in 0..CHASE_STEPS {
        at = next[at as usize * words];
    }
    black_box(at);
    (processor_time() - start) / f64::from(CHASE_STEPS)
}

fn block_hash() -> f64 {
    let mut block = [0_u8; 64];
    let mut sum = 0_u64;
    let start = processor_time();
    for round in 0..HASHES {
        block[..4].copy_from_slice(&round.to_le_bytes());
        sum ^= xxh3_64_with_seed(black_box(&block), 1337);
    }
    black_box(sum);
    (processor_time() - start) / f64::from(HASHES)
}

fn clock() -> f64 {
    let rounds = 200_000_u32;
    let start = processor_time();
    for _ in 0..rounds {
        black_box(Instant::now().elapsed());
    }
    // Between the two readings lies about one.
    (processor_time() - start) / f64::from(rounds) / 2.0
}

fn processor_clock() -> f64 {
    let rounds = 50_000_u32;
    let start = processor_time();
    for _ in 0..rounds {
        black_box(processor_time() - processor_time());
    }
    (processor_time() - start) / f64::from(rounds) / 2.0
}

/// Returns this thread's time on a processor so far, in nanoseconds. Other work of the machine is not in it.
pub(crate) fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Pushes everything else out of the processor's caches.
pub(crate) fn forget_caches() {
    let mut lines = vec![0_u64; (96 << 20) / size_of::<u64>()];
    for (at, word) in lines.iter_mut().enumerate().step_by(LINE / size_of::<u64>()) {
        *word = at as u64;
    }
    black_box(&lines);
}

/// Returns the process's resident memory in bytes; 0 where `/proc` is not there.
pub(crate) fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
