//! Facts of small traces, and of Mooncake's own, which are not part of the project.

use std::path::Path;

use super::*;

/// Returns a trace with the prompt tokens, output tokens and blocks of each request, one a second.
fn trace(requests: &[(u32, u32, &[u64])]) -> Trace {
    let request = |(at_s, &(prompt_tokens, output_tokens, blocks)): (u64, &(u32, u32, &[u64]))| Request {
        at_us: at_s * 1_000_000,
        prompt_tokens,
        output_tokens,
        blocks: blocks.into(),
        session: None,
        grown_blocks: Box::default(),
        model: "".into(),
        after: None,
        tenant: None,
    };
    let requests = (0..).zip(requests).map(request).collect();
    Trace {
        name: "small".to_owned(),
        block_tokens: 512,
        requests,
    }
}

/// Returns a recorded trace. Prints a message and returns `None` where the project's data are not there.
fn recorded(file: &str) -> Option<Trace> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/traces")
        .join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: there is no {}", path.display());
        return None;
    };
    Some(Trace::from_mooncake(file, &text).unwrap())
}

fn about(found: f64, wanted: f64, within: f64) {
    assert!((found - wanted).abs() <= within, "{found} is not about {wanted}");
}

#[test]
fn counts_prefixes_that_an_earlier_prompt_had() {
    let facts = TraceFacts::of(&trace(&[
        (1_024, 10, &[0, 1]),
        (1_000, 10, &[0, 2]),
        // The same prompt again: all of it, though its last block is not full.
        (1_000, 40, &[0, 2]),
        // Block 1 was seen, but not after 3.
        (1_024, 20, &[3, 1]),
    ]));
    assert_eq!(
        (
            facts.requests,
            facts.blocks,
            facts.unique_blocks,
            facts.first_blocks
        ),
        (4, 8, 4, 2)
    );
    assert_eq!(facts.ideal_block_hit, 3.0 / 8.0);
    assert_eq!(facts.ideal_token_hit, (512.0 + 1_000.0) / 4_048.0);
    assert_eq!(facts.seen_once, 1.0 / 4.0);
    assert_eq!(facts.unique_tokens, 4 * 512);
    assert_eq!(
        (facts.duration_s, facts.per_second, facts.distinct_arrivals),
        (3.0, 4.0 / 3.0, 4)
    );
    assert_eq!(
        facts.output,
        Lengths {
            mean: 20.0,
            p50: 10,
            p90: 40,
            p99: 40,
            max: 40
        }
    );
}

#[test]
fn a_prompt_that_repeats_an_answer_hits_its_blocks() {
    let mut trace = trace(&[(512, 1_024, &[0]), (2_048, 10, &[0, 1, 2, 3])]);
    trace.requests[0].grown_blocks = [0, 1, 2].into();
    let facts = TraceFacts::of(&trace);
    assert_eq!(facts.ideal_block_hit, 3.0 / 5.0);
    assert_eq!((facts.blocks, facts.unique_blocks, facts.seen_once), (5, 4, 0.75));
}

#[test]
fn percentiles_are_lengths_that_occur() {
    let lengths = Lengths::of(1..=200);
    assert_eq!(
        lengths,
        Lengths {
            mean: 100.5,
            p50: 100,
            p90: 180,
            p99: 198,
            max: 200
        }
    );
}

#[test]
fn an_empty_trace_has_figures_of_0() {
    let facts = TraceFacts::of(&trace(&[]));
    assert_eq!(
        (
            facts.requests,
            facts.per_second,
            facts.ideal_block_hit,
            facts.prompt.p50
        ),
        (0, 0.0, 0.0, 0)
    );
}

// The figures of both are those of `mooncake-paper.md`, section 10, counted by another program.

#[test]
fn counts_the_conversation_trace_as_the_research_did() {
    let Some(trace) = recorded("conversation_trace.jsonl") else {
        return;
    };
    let facts = TraceFacts::of(&trace);
    assert_eq!((facts.requests, facts.distinct_arrivals), (12_031, 1_180));
    about(facts.duration_s, 3_537.0, 0.5);
    about(facts.per_second, 3.40, 0.005);
    about(facts.prompt.mean, 12_035.0, 0.5);
    about(facts.output.mean, 342.6, 0.05);
    assert_eq!(
        (facts.prompt.p50, facts.prompt.p90, facts.prompt.p99),
        (6_909, 27_367, 85_401)
    );
    assert_eq!(facts.prompt.max, 126_195);
    assert_eq!((facts.output.p50, facts.output.p99), (350, 1_120));
    assert_eq!(
        (facts.blocks, facts.unique_blocks, facts.first_blocks),
        (288_500, 182_790, 1)
    );
    about(facts.seen_once, 0.758, 0.0005);
    about(facts.ideal_block_hit, 0.3664, 0.00005);
    about(facts.ideal_token_hit, 0.3736, 0.00005);
}

#[test]
fn counts_the_synthetic_trace_as_the_research_did() {
    let Some(trace) = recorded("synthetic_trace.jsonl") else {
        return;
    };
    let facts = TraceFacts::of(&trace);
    assert_eq!((facts.requests, facts.distinct_arrivals), (3_993, 3_982));
    about(facts.prompt.mean, 15_325.0, 0.5);
    about(facts.output.mean, 149.1, 0.05);
    assert_eq!(
        (facts.prompt.p50, facts.prompt.p90, facts.prompt.p99),
        (11_587, 38_615, 66_458)
    );
    assert_eq!((facts.output.p50, facts.output.p99), (69, 769));
    assert_eq!(
        (facts.blocks, facts.unique_blocks, facts.first_blocks),
        (121_877, 43_924, 2_211)
    );
    about(facts.seen_once, 0.584, 0.0005);
    about(facts.ideal_block_hit, 0.6396, 0.00005);
    about(facts.ideal_token_hit, 0.6512, 0.00005);
}

#[test]
fn a_recorded_trace_is_written_as_it_was_read() {
    let Some(trace) = recorded("conversation_trace.jsonl") else {
        return;
    };
    let again = Trace::from_mooncake(&trace.name, &trace.to_mooncake()).unwrap();
    assert!(again == trace);
}

#[test]
fn a_recorded_trace_that_is_spread_has_as_many_arrivals_as_requests_nearly() {
    let Some(mut trace) = recorded("conversation_trace.jsonl") else {
        return;
    };
    let before = trace.clone();
    trace.spread(1);
    let facts = TraceFacts::of(&trace);
    assert!(
        facts.distinct_arrivals > 12_000,
        "{} different arrivals",
        facts.distinct_arrivals
    );
    for (spread, recorded) in trace.requests.iter().zip(&before.requests) {
        assert!((recorded.at_us..=recorded.at_us + 3_003_000).contains(&spread.at_us));
        assert_eq!(spread.blocks, recorded.blocks);
    }
}
