//! Compares a model's tokens with an engine's: `compare MODEL_FOLDER < CASES`, one JSON object a line with `template`,
//! `body` and `tokens`. tests/engines/vllm_tokens.py gets them from the engine.

#[path = "../tests/it/case.rs"]
mod case;

use std::io::Read as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: compare MODEL_FOLDER < CASES");
        return ExitCode::FAILURE;
    };
    let mut lines = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut lines) {
        eprintln!("failed to read the cases: {error}");
        return ExitCode::FAILURE;
    }
    let compared = case::compare(folder.as_ref(), &lines);
    for difference in &compared.differences {
        println!("{difference}\n");
    }
    println!(
        "{} prompts equal ({} tokens), {} refused by both, {} different",
        compared.equal,
        compared.tokens,
        compared.refused,
        compared.differences.len()
    );
    if compared.differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
