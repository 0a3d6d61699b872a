//! Sizes, what is shared and what is not.

use super::*;
use bench_vocabulary as vocabulary;
use serde_json::Value;
use std::collections::HashSet;

const EVERY: [PromptForm; 3] = [PromptForm::Chat, PromptForm::Turns, PromptForm::Ids];

/// Returns the bodies of the first requests.
#[track_caller]
fn bodies(form: PromptForm, body_bytes: usize) -> Vec<Value> {
    let mut prompts = Prompts::new(form, body_bytes, None);
    let read = |request: &[u8]| {
        let at = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(request[at..].len(), body_bytes, "{form:?}");
        serde_json::from_slice(&request[at..]).unwrap()
    };
    (0..3 * groups(form)).map(|_| read(prompts.next())).collect()
}

fn prompt(body: &Value) -> String {
    let prompt = if body["prompt"].is_array() {
        &body["prompt"]
    } else {
        &body["messages"]
    };
    prompt.to_string()
}

fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[test]
fn requests_have_the_size_requested_and_no_two_are_alike() {
    for form in EVERY {
        let sizes = if form == PromptForm::Turns {
            &[32_768][..]
        } else {
            &[1024, 32_768]
        };
        for size in sizes {
            let prompts: HashSet<_> = bodies(form, *size).iter().map(prompt).collect();
            assert_eq!(prompts.len() as u64, 3 * groups(form));
        }
    }
}

#[test]
fn requests_of_a_group_share_three_quarters_and_groups_differ_early() {
    for (form, size) in [PromptForm::Chat, PromptForm::Ids]
        .into_iter()
        .flat_map(|form| [(form, 1024), (form, 32_768)])
    {
        let prompts: Vec<_> = bodies(form, size).iter().map(prompt).collect();
        let first = &prompts[0];
        assert!(common(first, &prompts[1]) < 60, "groups differ early");
        let share = common(first, &prompts[GROUPS as usize]) as f64 / first.len() as f64;
        assert!((0.73..0.79).contains(&share), "{form:?} of {size}: {share}");
    }
}

#[test]
fn a_conversation_has_a_long_history_and_a_short_new_turn() {
    let bodies = bodies(PromptForm::Turns, 32_768);
    let [first, later, other] =
        [0, CONVERSATIONS as usize, 1].map(|at| bodies[at]["messages"].as_array().unwrap());
    assert_eq!(first[..first.len() - 1], later[..later.len() - 1]);
    assert_ne!(first.last(), later.last());
    assert_eq!(first[0], other[0], "the system prompt");
    assert_ne!(first[1], other[1]);
    let roles: Vec<_> = first
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!((roles[0], roles[1], roles[2]), ("system", "user", "assistant"));
    assert_eq!(roles.last(), Some(&"user"));
    let turn = first.last().unwrap()["content"].as_str().unwrap();
    assert!(
        (NEW_TURN_BYTES..NEW_TURN_BYTES + 4).contains(&turn.len()),
        "{}",
        turn.len()
    );
}

#[test]
fn every_request_of_a_group_begins_with_its_shared_messages() {
    for form in [PromptForm::Chat, PromptForm::Turns] {
        let bodies = bodies(form, 32_768);
        for (group, at) in [(3, 3), (3, 3 + groups(form) as usize)] {
            let shared = shared_messages(form, group, 32_768);
            let messages = bodies[at]["messages"].as_array().unwrap();
            for (own, sent) in shared.iter().zip(messages) {
                assert_eq!(own.role, sent["role"]);
                assert!(sent["content"].as_str().unwrap().starts_with(&own.content));
            }
            let tokens = vocabulary::beginning(&shared).len();
            assert!(tokens > 6_000, "{form:?}: {tokens} tokens");
        }
    }
}

#[test]
fn short_prompts_begin_like_long_ones_of_the_group() {
    let [short, long] =
        [1024, 32_768].map(|bytes| vocabulary::beginning(&shared_messages(PromptForm::Chat, 5, bytes)));
    assert_eq!(short, long[..short.len()]);
    assert!(short.len() > 160, "{}", short.len());
}

#[test]
fn a_stream_is_requested_by_its_number_of_tokens_and_their_pace() {
    let stream = |spacing| {
        let stream = StreamOf { tokens: 200, spacing };
        let mut prompts = Prompts::new(PromptForm::Chat, 1024, Some(stream));
        String::from_utf8(prompts.next().to_vec()).unwrap()
    };
    assert!(stream(None).contains(r#""max_tokens":200,"stream":true,"#));
    let slow = stream(Some(Duration::from_secs(1)));
    assert!(slow.contains(r#""max_tokens":200,"seed":1000000,"stream":true,"#));
}
