//! Tests of texts that real engines returned and received (vLLM 0.32, `../shared/data/captures/http`), read back.
//! Skipped where the captures are not there; the crate's own tests make the same claims on texts of their own.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

use std::path::{Path, PathBuf};

use inference_api::{Endpoint, Peek, Tail, Tokenized, merge_models, peek};

/// Returns the captures' folder. If there is none, prints the reason for doing nothing.
fn captures() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http");
    if !folder.is_dir() {
        println!("skipped: `{}` is not there", folder.display());
        return None;
    }
    Some(folder)
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the body of a captured response.
fn body(folder: &Path, name: &str) -> Vec<u8> {
    let raw = read(folder, name);
    let head = raw
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
        .or_else(|| {
            raw.windows(2)
                .position(|window| window == b"\n\n")
                .map(|at| at + 2)
        })
        .expect("a blank line after the head");
    raw[head..].to_vec()
}

#[track_caller]
fn check_request(folder: &Path, name: &str, endpoint: Endpoint, stream: bool, max_tokens: u64) {
    let bytes = read(folder, name);
    let peek: Peek<'_> = peek(endpoint, &bytes).unwrap();
    assert_eq!((&*peek.model, peek.stream), ("tiny", stream), "{name}");
    assert_eq!(peek.max_tokens, Some(max_tokens), "{name}");
    assert!(
        peek.tokenize_body().is_some() || peek.token_ids().is_some(),
        "{name}"
    );
}

#[test]
fn captured_requests_are_read() {
    let Some(folder) = captures() else { return };
    check_request(&folder, "chat.request.json", Endpoint::ChatCompletions, false, 4);
    check_request(
        &folder,
        "chat_stream.request.json",
        Endpoint::ChatCompletions,
        true,
        4,
    );
    check_request(&folder, "responses.request.json", Endpoint::Responses, false, 16);
}

#[test]
fn a_captured_chat_queries_tokenize_for_what_was_captured() {
    let Some(folder) = captures() else { return };
    let chat = read(&folder, "chat.request.json");
    let built = peek(Endpoint::ChatCompletions, &chat).unwrap().tokenize_body();
    assert_eq!(
        built,
        Some(read(&folder, "tokenize_chat.request.json").trim_ascii().to_vec())
    );
    let answer = Tokenized::parse(&body(&folder, "tokenize_chat.http")).unwrap();
    assert_eq!(answer.tokens.len(), 15);
}

#[test]
fn captured_answers_report_their_end_and_their_cached_tokens() {
    let Some(folder) = captures() else { return };
    for (name, finished, cached) in [
        ("chat.http", false, Some(0)),
        ("responses.http", false, Some(0)),
        ("chat_stream.http", true, Some(0)),
        ("completion_stream.http", true, Some(0)),
        ("completion_stream_nousage.http", true, None),
    ] {
        let mut tail = Tail::default();
        for chunk in body(&folder, name).chunks(100) {
            tail.push(chunk);
        }
        assert_eq!(tail.stream_is_finished(), finished, "{name}");
        assert_eq!(tail.cached_tokens(), cached, "{name}");
    }
}

#[test]
fn captured_model_lists_merge_to_one() {
    let Some(folder) = captures() else { return };
    let list = body(&folder, "models.http");
    let merged = merge_models([&list[..], &list[..]]).unwrap();
    assert_eq!(merged, list.trim_ascii());
}
