//! Tests of the scheduler step by step, without a clock.

use super::*;
use crate::event::{Adapter, Namespace};
use crate::sequence::Finish;

fn scheduler(config: MockConfig) -> Scheduler {
    Scheduler::new(&config)
}

fn small() -> MockConfig {
    MockConfig {
        block_size: 4,
        cache_blocks: 8,
        ..MockConfig::default()
    }
}

fn submit(
    scheduler: &mut Scheduler,
    prompt: &[u32],
    limit: u32,
    namespace: Namespace,
) -> mpsc::Receiver<Output> {
    let (output, answer) = mpsc::channel(limit as usize);
    assert!(scheduler.submit(Submission {
        prompt: prompt.to_vec(),
        limit,
        finish: Finish::Length,
        namespace,
        choice: 0,
        variant: 0,
        output,
        transfer: None,
    }));
    answer
}

/// Runs until idle; returns the batches.
fn run(scheduler: &mut Scheduler) -> Vec<Vec<CacheEvent>> {
    let mut batches = Vec::new();
    while let Some(step) = scheduler.begin_step() {
        let result = scheduler.finish_step(step);
        if !result.events.is_empty() {
            batches.push(result.events);
        }
        for (to, output) in result.outputs {
            to.try_send(output).expect("room for every token");
        }
    }
    batches
}

/// Serves one request alone; returns its cached tokens and the shapes of its batches.
fn serve(scheduler: &mut Scheduler, prompt: &[u32], limit: u32) -> (u32, Vec<String>) {
    let mut answer = submit(scheduler, prompt, limit, Namespace::default());
    let batches = run(scheduler);
    let first = answer.try_recv().expect("an answer");
    (first.cached_tokens, shapes(&batches))
}

/// Formats a batch: R for each eviction, S and the number of blocks for each announcement, C for a clear.
fn shapes(batches: &[Vec<CacheEvent>]) -> Vec<String> {
    let shape = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => format!("S{}", stored.hashes.len()),
        CacheEvent::Removed(_) => "R".to_owned(),
        CacheEvent::Cleared => "C".to_owned(),
    };
    batches
        .iter()
        .map(|batch| batch.iter().map(shape).collect())
        .collect()
}

/// Returns a prompt of `shared` common tokens, then tokens of its own.
fn prompt(shared: u32, own: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| if at < shared { at } else { own * 1000 + at })
        .collect()
}

/// Requests of a recorded session with vLLM 0.32 (32-token blocks, 23 usable), its published events and reported
/// cached tokens: cold and warm prompts, decode-filled blocks, eviction, reset.
#[test]
fn a_recorded_session_gives_the_same_batches_as_vllm() {
    let mut engine = scheduler(MockConfig {
        block_size: 32,
        cache_blocks: 23,
        ..MockConfig::default()
    });
    let mut check = |prompt: &[u32], limit, cached, batches: &[&str]| {
        let found = serve(&mut engine, prompt, limit);
        assert_eq!(found, (cached, batches.iter().map(|&b| b.to_owned()).collect()));
    };
    let p0 = prompt(128, 1, 151);
    check(&p0, 4, 0, &["S4"]);
    check(&p0, 4, 128, &[]);
    check(&prompt(128, 2, 151), 4, 128, &[]);
    check(&prompt(128, 3, 183), 4, 128, &["S1"]);
    check(&p0, 80, 128, &["S1", "S1", "S1"]);
    check(&prompt(0, 4, 70), 4, 0, &["S2"]);
    check(&prompt(0, 5, 40), 4, 0, &["S1"]);
    check(&prompt(0, 6, 40), 4, 0, &["S1"]);
    // In the recording P0 with a salt: other blocks throughout.
    check(&prompt(0, 7, 151), 4, 0, &["S4"]);
    check(&prompt(0, 7, 151), 4, 128, &[]);
    // Two turns of a chat; the second does not repeat the generated text.
    check(&prompt(0, 8, 157), 4, 0, &["S4", "S1"]);
    let mut second = prompt(0, 8, 157);
    second.extend(9000..9041);
    check(&second, 4, 128, &["RS2"]);
    for own in 10..16 {
        check(&prompt(0, own, 200), 4, 0, &["RRRRRRS6"]);
    }
    check(&p0, 4, 0, &["RRRRS4"]);
    assert!(engine.reset_prefix_cache());
    assert_eq!(serve(&mut engine, &p0, 4), (0, vec!["CS4".to_owned()]));
    assert_eq!(serve(&mut engine, &[1, 2], 4), (0, vec![]));
}

#[track_caller]
fn check_cached(length: u32, cached: u32) {
    let mut engine = scheduler(small());
    serve(&mut engine, &prompt(0, 1, length), 1);
    assert_eq!(
        serve(&mut engine, &prompt(0, 1, length), 1).0,
        cached,
        "{length} tokens"
    );
}

#[test]
fn the_last_token_is_always_computed() {
    check_cached(3, 0);
    check_cached(4, 0);
    check_cached(5, 4);
    check_cached(8, 4);
    check_cached(9, 8);
}

#[test]
fn a_generated_block_is_announced_when_full_and_found_by_the_next_turn() {
    let mut engine = scheduler(small());
    let mut answer = submit(&mut engine, &[1, 2, 3], 6, Namespace::default());
    let batches = run(&mut engine);
    assert_eq!(shapes(&batches), ["S1", "S1"]);
    let mut next = vec![1, 2, 3];
    while let Ok(output) = answer.try_recv() {
        next.extend(crate::tokens::tokenize(&output.text));
    }
    assert_eq!(next.len(), 9);
    assert_eq!(serve(&mut engine, &next, 1).0, 8);
}

#[test]
fn salt_marks_the_first_block_and_an_adapter_every_block() {
    let mut engine = scheduler(small());
    let namespace = Namespace {
        adapter: Some(Adapter {
            id: 1,
            name: "ad".into(),
        }),
        salt: Some("tenant".into()),
    };
    submit(&mut engine, &[1; 9], 1, namespace.clone());
    let _answer = submit(&mut engine, &[1; 9], 1, namespace);
    let batches = run(&mut engine);
    let [CacheEvent::Stored(stored)] = &batches[0][..] else {
        panic!("{batches:?}")
    };
    assert_eq!(stored.namespace.extra_keys(true), ["ad", "tenant"]);
    assert_eq!(stored.namespace.extra_keys(false), ["ad"]);
    assert_eq!(serve(&mut engine, &[1; 9], 1).0, 0);
}

#[test]
fn prompts_are_computed_one_at_a_time_while_others_decode() {
    let mut engine = scheduler(MockConfig {
        chunk_tokens: Some(4),
        ..small()
    });
    let mut first = submit(&mut engine, &prompt(0, 1, 4), 3, Namespace::default());
    let mut second = submit(&mut engine, &prompt(0, 2, 8), 1, Namespace::default());
    let mut tokens = |engine: &mut Scheduler| {
        let step = engine.begin_step().expect("work");
        for (to, output) in engine.finish_step(step).outputs {
            to.try_send(output).expect("room");
        }
        (first.try_recv().is_ok(), second.try_recv().is_ok())
    };
    assert_eq!(tokens(&mut engine), (true, false));
    assert_eq!(tokens(&mut engine), (true, false));
    assert_eq!(tokens(&mut engine), (true, true));
}

#[test]
fn a_client_that_leaves_frees_its_blocks() {
    let mut engine = scheduler(small());
    let answer = submit(&mut engine, &prompt(0, 1, 9), 100, Namespace::default());
    let waiting = submit(&mut engine, &prompt(0, 2, 9), 1, Namespace::default());
    let step = engine.begin_step().expect("work");
    engine.finish_step(step);
    assert_eq!(engine.stats().blocks_used, 3);
    drop((answer, waiting));
    assert_eq!(engine.begin_step(), None);
    let stats = engine.stats();
    assert_eq!((stats.blocks_used, stats.cancelled, stats.in_flight()), (0, 2, 0));
    assert_eq!(stats.blocks_held, 2);
}

#[test]
fn the_newest_sequence_makes_way_and_still_gets_its_answer() {
    let mut engine = scheduler(small());
    let mut answers = [1, 2].map(|own| submit(&mut engine, &prompt(0, own, 8), 20, Namespace::default()));
    run(&mut engine);
    let mut alone = scheduler(small());
    for (own, answer) in [1, 2].into_iter().zip(&mut answers) {
        let mut expected = submit(&mut alone, &prompt(0, own, 8), 20, Namespace::default());
        run(&mut alone);
        for _ in 0..20 {
            let text = |output: Output| output.text;
            assert_eq!(answer.try_recv().map(text), expected.try_recv().map(text));
        }
    }
    assert!(engine.stats().preemptions > 0);
    assert_eq!(engine.stats().blocks_used, 0);
}

#[test]
fn a_full_queue_refuses() {
    let mut engine = scheduler(MockConfig {
        max_waiting: 1,
        ..small()
    });
    let _waiting = submit(&mut engine, &[1], 1, Namespace::default());
    let (output, _answer) = mpsc::channel(1);
    assert!(!engine.submit(Submission {
        prompt: vec![1],
        limit: 1,
        finish: Finish::Stop,
        namespace: Namespace::default(),
        choice: 0,
        variant: 0,
        output,
        transfer: None,
    }));
}

#[test]
fn a_step_costs_its_piece_of_prompt_and_its_batch() {
    let cost = CostModel {
        prefill_fixed_ms: 100.0,
        prefill_token_ms: 1.0,
        prefill_quadratic_ms: 0.0,
        decode_step_ms: 10.0,
        decode_sequence_ms: 0.5,
    };
    let mut engine = scheduler(MockConfig { cost, ..small() });
    let _answers = [1, 2].map(|own| submit(&mut engine, &prompt(4, own, 6), 9, Namespace::default()));
    let mut millis = || {
        let step = engine.begin_step().expect("work");
        engine.finish_step(step);
        step.millis
    };
    assert_eq!([millis(), millis(), millis()], [106.0, 112.5, 11.0]);
}
