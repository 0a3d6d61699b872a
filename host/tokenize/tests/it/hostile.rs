//! Prompts made to cost much: what they may cost is bounded, and others are not hindered by it.

use std::fs;
use std::path::Path;

use tokenize::{Budget, EncodeError, FilePaths, Model, Rendered, TokenizationCache};

const STEPS: u64 = 5_000_000;

fn model() -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    let paths = FilePaths {
        tokenizer: folder,
        chat_template: None,
    };
    Model::load(&paths.read().unwrap(), None).unwrap()
}

/// Returns the result of a text, and the steps that it took.
fn cost(model: &Model, text: String) -> (Result<usize, EncodeError>, u64) {
    let (cache, never) = (TokenizationCache::new(1 << 20), || false);
    let mut budget = Budget::new(STEPS, &never);
    let prepared = model.prepare(Rendered::text(text, false), &cache);
    let made = model.complete(prepared, &cache, &mut budget);
    (made.map(|tokens| tokens.ids.len()), STEPS - budget.left())
}

#[test]
fn megabytes_without_words_are_cut_off_before_they_cost_anything() {
    let model = model();
    for letter in [" ", "a", "\n", "=", "0", "\u{3000}", "é", "\u{a0}"] {
        let (made, steps) = cost(&model, letter.repeat((4 << 20) / letter.len()));
        match made {
            // Digits are words of three at most.
            Ok(tokens) => assert!(letter == "0" && tokens > 0, "{letter:?}"),
            Err(error) => assert!(matches!(error, EncodeError::TooCostly), "{letter:?}: {error:?}"),
        }
        assert!(steps < STEPS / 2, "{letter:?}: {steps}");
    }
}

#[test]
fn an_ordinary_text_costs_little() {
    let model = model();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs");
    let text = fs::read_to_string(file).unwrap().repeat(20);
    let length = text.len() as u64;
    let (made, steps) = cost(&model, text);
    assert!(made.is_ok() && steps < 4 * length, "{steps} for {length} bytes");
}

#[test]
fn what_was_made_before_a_prompt_was_cut_off_is_known_the_next_time() {
    let model = model();
    let cache = TokenizationCache::new(16 << 20);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs");
    let text = format!("{}{}", fs::read_to_string(file).unwrap(), " ".repeat(1 << 20));
    let never = || false;
    let prepared = || model.prepare(Rendered::text(text.clone(), false), &cache);
    let new = prepared().new_bytes();
    let mut budget = Budget::new(STEPS, &never);
    let made = model.complete(prepared(), &cache, &mut budget);
    assert!(matches!(made, Err(EncodeError::TooCostly)));
    assert!(prepared().new_bytes() < new, "a part of it is known");
    let over = || true;
    let made = model.complete(prepared(), &cache, &mut Budget::new(STEPS, &over));
    assert!(matches!(made, Err(EncodeError::TooLate)));
}
