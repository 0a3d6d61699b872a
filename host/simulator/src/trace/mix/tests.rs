//! Tests of the mixes' figures, counted in their traces.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::trace::TraceFacts;

const SEEDS: [u64; 2] = [1, 2];

fn usual(mix: Mix, seed: u64) -> (Trace, TraceFacts) {
    let trace = mix.generate(&mix.usual(seed));
    let facts = TraceFacts::of(&trace);
    println!("{}: {facts:?}", trace.name);
    (trace, facts)
}

/// Checks that the value is within this share of the wanted one.
fn near(name: &str, found: f64, wanted: f64, within: f64) {
    let off = (found / wanted - 1.0).abs();
    assert!(
        off <= within,
        "{name} is {found}, {:.1} % off {wanted}",
        off * 100.0
    );
}

/// Checks that the value is within this distance of the wanted one.
fn about(name: &str, found: f64, wanted: f64, within: f64) {
    assert!(
        (found - wanted).abs() <= within,
        "{name} is {found}, not about {wanted}"
    );
}

/// Returns the variance over mean of the requests in 10 s: 1 where all arrive independently of each other.
fn dispersion(trace: &Trace) -> f64 {
    let windows = trace.duration_us() / 10_000_000;
    let mut counts = vec![0.0; windows as usize];
    for request in &trace.requests {
        if let Some(count) = counts.get_mut((request.at_us / 10_000_000) as usize) {
            *count += 1.0;
        }
    }
    let mean = counts.iter().sum::<f64>() / windows as f64;
    let variance = counts
        .iter()
        .map(|count: &f64| (count - mean).powi(2))
        .sum::<f64>()
        / windows as f64;
    variance / mean
}

/// Returns the block hit ratio of one LRU cache of so many blocks.
fn hits_with(trace: &Trace, capacity: usize) -> f64 {
    let mut requested_at: HashMap<u64, u64> = HashMap::new();
    let mut by_age = BTreeMap::new();
    let (mut now, mut hits, mut blocks) = (0, 0, 0);
    for request in &trace.requests {
        let mut unbroken = true;
        for &block in &request.blocks {
            let before = requested_at.insert(block, now);
            by_age.insert(now, block);
            if let Some(before) = before {
                by_age.remove(&before);
            } else if by_age.len() > capacity {
                let (_, oldest) = by_age.pop_first().expect("it has more blocks than fit");
                requested_at.remove(&oldest);
            }
            unbroken &= before.is_some();
            hits += u32::from(unbroken);
            blocks += 1;
            now += 1;
        }
    }
    f64::from(hits) / f64::from(blocks)
}

#[test]
fn every_mix_is_found_by_its_name() {
    for mix in Mix::ALL {
        assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
    }
    assert_eq!(
        "chat".parse::<Mix>().unwrap_err().to_string(),
        "find a mix called `chat`: there are conversation, agents, shared-prompt, rag, long-context, bursts"
    );
}

#[test]
fn every_mix_makes_the_same_trace_of_the_same_seed_and_another_of_another() {
    for mix in Mix::ALL {
        let make = |seed| {
            mix.generate(&MixOptions {
                seed,
                requests: 300,
                rate_per_s: 3.0,
            })
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1).requests, make(2).requests);
    }
}

#[test]
fn every_mix_makes_the_configured_number_of_requests_at_the_configured_rate() {
    for mix in Mix::ALL {
        for (requests, rate_per_s) in [(0, 1.0), (1, 1.0), (2_000, 0.5), (2_000, 20.0)] {
            let trace = mix.generate(&MixOptions {
                seed: 4,
                requests,
                rate_per_s,
            });
            assert_eq!(trace.requests.len(), requests);
            if requests > 1 {
                near(mix.name(), TraceFacts::of(&trace).per_second, rate_per_s, 0.02);
            }
        }
    }
}

#[test]
fn every_mix_makes_requests_that_a_trace_file_can_hold() {
    for mix in Mix::ALL {
        let mut trace = mix.generate(&MixOptions {
            seed: 5,
            requests: 2_000,
            rate_per_s: 3.4,
        });
        let start_us = trace.requests[0].at_us;
        for request in &mut trace.requests {
            request.at_us -= start_us;
            assert!(
                request.prompt_tokens <= 131_072,
                "{mix}: a prompt of {}",
                request.prompt_tokens
            );
        }
        // Reading also checks that an id stands for one prefix.
        let read = Trace::from_mooncake(&trace.name, &trace.to_mooncake()).unwrap();
        assert!(read == trace, "{mix} is read as it was written");
    }
}

#[test]
fn conversations_have_the_statistics_of_the_recorded_trace() {
    for seed in SEEDS {
        let (_, facts) = usual(Mix::Conversation, seed);
        near("mean prompt", facts.prompt.mean, 12_035.0, 0.05);
        near("median prompt", facts.prompt.p50.into(), 6_909.0, 0.08);
        near(
            "90th percentile of prompts",
            facts.prompt.p90.into(),
            27_367.0,
            0.08,
        );
        near(
            "99th percentile of prompts",
            facts.prompt.p99.into(),
            85_401.0,
            0.10,
        );
        near("mean output", facts.output.mean, 342.6, 0.03);
        near("median output", facts.output.p50.into(), 350.0, 0.04);
        near(
            "99th percentile of outputs",
            facts.output.p99.into(),
            1_120.0,
            0.10,
        );
        near("blocks", facts.blocks as f64, 288_500.0, 0.05);
        near("different blocks", facts.unique_blocks as f64, 182_790.0, 0.05);
        assert_eq!(facts.first_blocks, 1);
        about("blocks seen once", facts.seen_once, 0.758, 0.04);
        about("ideal block hits", facts.ideal_block_hit, 0.3664, 0.02);
        about("ideal token hits", facts.ideal_token_hit, 0.3736, 0.02);
    }
}

#[test]
fn turns_of_a_conversation_mostly_contain_the_one_before() {
    let (trace, _) = usual(Mix::Conversation, 1);
    let mut former: HashMap<u64, &[u64]> = HashMap::new();
    let (mut turns, mut containing) = (0.0, 0.0);
    for request in &trace.requests {
        let session = request.session.expect("a generated request has a session");
        if let Some(before) = former.insert(session, &request.blocks) {
            turns += 1.0;
            let shared = before
                .iter()
                .zip(&request.blocks)
                .take_while(|(one, other)| one == other)
                .count();
            containing += f64::from(u8::from(shared + 1 >= before.len()));
        }
    }
    // In the recorded trace 38.7 % of requests continue another, and 85 % of those contain it but for a block that was
    // not full.
    about(
        "share of later turns",
        turns / trace.requests.len() as f64,
        0.387,
        0.04,
    );
    about(
        "share of those containing the former",
        containing / turns,
        0.85,
        0.03,
    );
}

#[test]
fn conversations_come_back_as_soon_as_in_the_recorded_trace() {
    let (trace, _) = usual(Mix::Conversation, 1);
    // The recorded trace's hits in one pool: `mooncake-paper.md`, section 10. The hits of a cache of a size show how
    // soon blocks are reused.
    for (capacity, recorded) in [(1_000, 0.045), (5_859, 0.136), (10_000, 0.212), (30_000, 0.326)] {
        let found = hits_with(&trace, capacity);
        about(&format!("hits in {capacity} blocks"), found, recorded, 0.015);
    }
}

#[test]
fn agents_have_the_published_figures_of_the_tool_and_agent_trace() {
    for seed in SEEDS {
        let (_, facts) = usual(Mix::Agents, seed);
        near("mean prompt", facts.prompt.mean, 8_596.0, 0.05);
        near("mean output", facts.output.mean, 182.0, 0.05);
        about("ideal block hits", facts.ideal_block_hit, 0.59, 0.03);
        assert!(
            (40..=80).contains(&facts.first_blocks),
            "{} programs",
            facts.first_blocks
        );
    }
}

#[test]
fn shared_prompts_are_nearly_all_somebody_elses() {
    let (_, facts) = usual(Mix::SharedPrompt, 1);
    assert!(facts.ideal_block_hit > 0.8, "{}", facts.ideal_block_hit);
    assert!(facts.first_blocks <= 60, "{} assistants", facts.first_blocks);
}

#[test]
fn searches_share_part_of_their_documents() {
    let (_, facts) = usual(Mix::Rag, 1);
    assert_eq!(facts.first_blocks, 1);
    assert!(
        (0.25..0.55).contains(&facts.ideal_block_hit),
        "{}",
        facts.ideal_block_hit
    );
    assert!(
        (4_000.0..8_000.0).contains(&facts.prompt.mean),
        "{}",
        facts.prompt.mean
    );
}

#[test]
fn long_contexts_are_as_long_as_the_papers_and_read_more_than_once() {
    let (_, facts) = usual(Mix::LongContext, 1);
    assert!(
        (40_000..60_000).contains(&facts.prompt.p50),
        "{}",
        facts.prompt.p50
    );
    assert!(
        (0.5..0.65).contains(&facts.ideal_block_hit),
        "{}",
        facts.ideal_block_hit
    );
}

#[test]
fn crowds_come_at_once_and_share_a_text() {
    let (bursts, crowded) = usual(Mix::Bursts, 1);
    let (calm, alone) = usual(Mix::Conversation, 1);
    assert!(
        dispersion(&calm) < 2.0,
        "conversations arrive independently: {}",
        dispersion(&calm)
    );
    assert!(
        dispersion(&bursts) > 10.0,
        "crowds do not: {}",
        dispersion(&bursts)
    );
    assert!(crowded.ideal_block_hit > alone.ideal_block_hit + 0.1);
    assert_eq!(crowded.first_blocks, 1);
}
