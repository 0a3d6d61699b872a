//! The tokens of a real vLLM, recorded by tests/engines/vllm_tokens.py: ours are the same.

use std::fs;
use std::path::Path;

use crate::case;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn tokens_are_those_of_a_real_engine() {
    let recorded = fs::read_to_string(fixture("vllm-0.32.0.jsonl")).unwrap();
    let compared = case::compare(&fixture("tiny"), &recorded);
    assert!(
        compared.differences.is_empty(),
        "{}",
        compared.differences.join("\n\n")
    );
    assert!(compared.equal >= 80, "{}", compared.equal);
}

/// Of the same tokenizer, captured at another time: `/tokenize` itself.
#[test]
fn tokens_are_those_of_the_captured_answers() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http");
    if !captures.is_dir() {
        println!("skipped: there is no {}", captures.display());
        return;
    }
    let names = [
        "tokenize_chat",
        "tokenize_chat_nogen",
        "tokenize_completion",
        "tokenize_completion_strs",
    ];
    for name in names {
        let body = fs::read_to_string(captures.join(format!("{name}.request.json"))).unwrap();
        let answer = fs::read_to_string(captures.join(format!("{name}.http"))).unwrap();
        let (_, answer) = answer
            .split_once("\r\n\r\n")
            .or_else(|| answer.split_once("\n\n"))
            .unwrap();
        let answer: serde_json::Value = serde_json::from_str(answer.trim()).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let line = serde_json::json!({"template": null, "body": body, "tokens": answer["tokens"]});
        let compared = case::compare(&fixture("tiny"), &line.to_string());
        assert_eq!(compared.equal, 1, "{name}: {:?}", compared.differences);
    }
}
