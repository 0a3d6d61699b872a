//! Closed-loop simulation of multi-turn conversations with shared system prompts, in virtual time.
//!
//! cache-aware keeps nearly the hits of longest-match without its imbalance, and answers sooner than
//! longest-match and round-robin. Each worker prefills in FIFO order and caches the computed conversations
//! with LRU eviction. A client sends its next turn some seconds after the previous answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use cache_aware::CacheAware;
use conductor_policy_sdk::testing::Scenario;
use conductor_policy_sdk::{Call, Column, Configured, Host, Params, Plan, Policy, Verdict, mix};

const WORKERS: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: u64 = 96;
const TURNS: u64 = 8;
const SYSTEM_TOKENS: u64 = 2_000;
const SYSTEM_PROMPTS: u64 = 3;
const TURN_TOKENS: u64 = 700;
const CACHE_TOKENS: u64 = 120_000;
const PREFILL_US_PER_TOKEN: u64 = 250;
const DECODE_US: u64 = 2_000_000;
const END_US: u64 = 300_000_000;

/// Round robin.
struct RoundRobin;

impl Policy for RoundRobin {
    const NAME: &'static str = "round-robin";
    const VERSION: &'static str = "1";

    fn configure(_: &mut Params, _: &mut Plan) -> Self {
        Self
    }

    fn schedule(&self, call: &Call<'_>, _: &impl Host) -> Verdict {
        let row = (call.request().seq % call.ids().len() as u64) as usize;
        Verdict::Route { row, score: f64::NAN }
    }
}

/// Longest match, ties at random.
struct LongestMatch(Column);

impl Policy for LongestMatch {
    const NAME: &'static str = "longest-match";
    const VERSION: &'static str = "1";

    fn configure(_: &mut Params, plan: &mut Plan) -> Self {
        Self(plan.column("prefix.device-tokens"))
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        Verdict::route_to(call.least(|| host.random(), |row| -row.get(self.0)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Turn {
        client: u64,
        turn: u64,
    },
    FirstToken {
        client: u64,
        turn: u64,
        worker: usize,
        uncached: u64,
    },
    Finished {
        client: u64,
        turn: u64,
        worker: usize,
    },
}

#[derive(Default)]
struct Worker {
    free_at: u64,
    /// Cached tokens and time of last use, by conversation; system prompts are conversations of their own.
    held: BTreeMap<u64, (u64, u64)>,
    requests: u32,
    decoding: u32,
    queued: u64,
    routed: u64,
}

impl Worker {
    fn matched(&self, conversation: u64, system: u64) -> u64 {
        let held = |key| self.held.get(&key).map_or(0, |&(tokens, _)| tokens);
        held(conversation).max(held(system))
    }

    fn store(&mut self, key: u64, tokens: u64, now: u64) {
        self.held.insert(key, (tokens, now));
        while self.held.values().map(|&(tokens, _)| tokens).sum::<u64>() > CACHE_TOKENS {
            let oldest = self.held.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = *oldest.expect("a cache above its limit is not empty").0;
            self.held.remove(&oldest);
        }
    }
}

struct Outcome {
    hit_ratio: f64,
    /// Ratio of the busiest worker's requests to the mean.
    imbalance: f64,
    mean_ttft_ms: f64,
}

/// Returns the keys of a turn; a client starts a new conversation every `TURNS` turns.
fn keys(client: u64, turn: u64) -> (u64, u64) {
    let conversation = mix(client, turn / TURNS) | 1 << 63;
    (conversation, conversation % SYSTEM_PROMPTS)
}

fn run<P: Policy>(policy: &Configured<P>) -> Outcome {
    let mut workers: [Worker; WORKERS.len()] = Default::default();
    let mut fleet = Scenario::new(WORKERS);
    let mut events = BinaryHeap::new();
    for client in 0..CLIENTS {
        events.push(Reverse((client * 50_000, Event::Turn { client, turn: 0 })));
    }
    let (mut hits, mut prompts, mut ttft_us, mut answered) = (0, 0, 0, 0);
    while let Some(Reverse((now, event))) = events.pop() {
        match event {
            Event::Turn { client, turn } if now < END_US => {
                let (conversation, system) = keys(client, turn);
                let prompt = SYSTEM_TOKENS + (turn % TURNS + 1) * TURN_TOKENS;
                fleet
                    .request("request.prompt-tokens", prompt as f64)
                    .session(Some(client));
                for (name, worker) in WORKERS.iter().zip(&workers) {
                    fleet
                        .holds(name, worker.matched(conversation, system) as f64)
                        .set(name, "load.requests", f64::from(worker.requests))
                        .set(name, "load.decoding", f64::from(worker.decoding))
                        .set(name, "load.prefill-tokens", worker.queued as f64);
                }
                let name = fleet
                    .route(policy)
                    .expect("every candidate has a cost")
                    .to_owned();
                let index = WORKERS
                    .iter()
                    .position(|known| *known == name)
                    .expect("the worker is a candidate");
                let worker = &mut workers[index];
                let matched = worker.matched(conversation, system);
                let uncached = prompt - matched;
                worker.free_at = worker.free_at.max(now) + uncached * PREFILL_US_PER_TOKEN;
                worker.requests += 1;
                worker.queued += uncached;
                worker.routed += 1;
                (hits, prompts) = (hits + matched, prompts + prompt);
                (ttft_us, answered) = (ttft_us + worker.free_at - now, answered + 1);
                let first = Event::FirstToken {
                    client,
                    turn,
                    worker: index,
                    uncached,
                };
                events.push(Reverse((worker.free_at, first)));
            }
            Event::Turn { .. } => {}
            Event::FirstToken {
                client,
                turn,
                worker,
                uncached,
            } => {
                let (conversation, system) = keys(client, turn);
                let at = &mut workers[worker];
                at.decoding += 1;
                at.queued -= uncached;
                at.store(system, SYSTEM_TOKENS, now);
                at.store(
                    conversation,
                    SYSTEM_TOKENS + (turn % TURNS + 1) * TURN_TOKENS,
                    now,
                );
                events.push(Reverse((
                    now + DECODE_US,
                    Event::Finished { client, turn, worker },
                )));
            }
            Event::Finished { client, turn, worker } => {
                workers[worker].decoding -= 1;
                workers[worker].requests -= 1;
                let think = 1_000_000 + mix(client, turn) % 9_000_000;
                events.push(Reverse((
                    now + think,
                    Event::Turn {
                        client,
                        turn: turn + 1,
                    },
                )));
            }
        }
    }
    let routed = workers.iter().map(|worker| worker.routed);
    let busiest = routed.clone().max().unwrap_or(0);
    Outcome {
        hit_ratio: hits as f64 / prompts as f64,
        imbalance: busiest as f64 * WORKERS.len() as f64 / routed.sum::<u64>() as f64,
        mean_ttft_ms: ttft_us as f64 / f64::from(answered) / 1e3,
    }
}

#[test]
fn keeps_the_hits_and_the_balance() {
    let show = |name: &str, outcome: Outcome| {
        println!(
            "{name}: hit ratio {:.2}, busiest over mean {:.2}, mean TTFT {:.0} ms",
            outcome.hit_ratio, outcome.imbalance, outcome.mean_ttft_ms
        );
        outcome
    };
    let turns = show("round-robin", run(&Configured::<RoundRobin>::new("{}").unwrap()));
    let longest = show(
        "longest-match",
        run(&Configured::<LongestMatch>::new("{}").unwrap()),
    );
    let aware = show("cache-aware", run(&Configured::<CacheAware>::new("{}").unwrap()));
    assert!(aware.hit_ratio > turns.hit_ratio + 0.15);
    assert!(aware.hit_ratio > longest.hit_ratio - 0.1);
    assert!(aware.imbalance < 1.3);
    assert!(aware.mean_ttft_ms < turns.mean_ttft_ms && aware.mean_ttft_ms < longest.mean_ttft_ms);
}
