//! Benchmark of a chat prompt: rendered, looked up and made into a vector of tokens. All but its last turn of 256 bytes
//! is known, another one each time; and the same with nothing known.

use std::fs;
use std::iter;
use std::path::Path;
use std::time::SystemTime;

use divan::{Bencher, black_box};
use tokenize::{Budget, Chat, FilePaths, Model, TokenizationCache};

fn main() {
    divan::main();
}

fn model() -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    let paths = FilePaths {
        tokenizer: folder,
        chat_template: None,
    };
    Model::load(&paths.read().expect("the fixture is there"), None).expect("it loads")
}

/// Returns a conversation of about so many bytes, from the texts of this crate: code and prose.
fn messages(bytes: usize) -> String {
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs")).expect("it is here");
    let source: Vec<char> = source.chars().cycle().take(bytes).collect();
    let texts = source.chunks((bytes / 20).max(1));
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages = texts
        .zip(roles)
        .map(|(text, role)| serde_json::json!({"role": role, "content": text.iter().collect::<String>()}));
    serde_json::Value::from(messages.collect::<Vec<_>>()).to_string()
}

/// Returns the same with a new turn at its end each time, from these texts.
fn turns(bytes: usize) -> impl Iterator<Item = String> {
    let history = messages(bytes);
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/chat.rs")).expect("it is here");
    let mut source: Vec<char> = source.chars().collect();
    iter::repeat_with(move || {
        source.rotate_left(97);
        let text: String = source[..NEW].iter().collect();
        let turn = serde_json::json!({"role": "user", "content": text});
        format!("{},{turn}]", history.trim_end_matches(']'))
    })
}

/// Letters of a new turn.
const NEW: usize = 256;

fn chat(messages: &str) -> Chat<'_> {
    Chat {
        messages,
        ..Chat::default()
    }
}

const SIZES: [usize; 3] = [1 << 10, 8 << 10, 32 << 10];

#[divan::bench(args = SIZES)]
fn warm(bencher: Bencher<'_, '_>, bytes: usize) {
    let (model, cache, mut turns) = (model(), TokenizationCache::new(64 << 20), turns(bytes));
    let tokens = |messages: &str| {
        let rendered = model
            .render(&chat(messages), SystemTime::UNIX_EPOCH)
            .expect("it renders");
        model
            .complete(model.prepare(rendered, &cache), &cache, &mut Budget::unlimited())
            .expect("it tokenizes")
    };
    turns.next().map(|messages| tokens(&messages));
    bencher
        .with_inputs(|| turns.next().unwrap_or_default())
        .bench_local_refs(|messages| black_box(tokens(messages)));
}

#[divan::bench(args = SIZES)]
fn warm_render_only(bencher: Bencher<'_, '_>, bytes: usize) {
    let (model, messages) = (model(), messages(bytes));
    bencher.bench_local(|| black_box(model.render(&chat(&messages), SystemTime::UNIX_EPOCH)));
}

#[divan::bench(args = SIZES)]
fn warm_prepare_only(bencher: Bencher<'_, '_>, bytes: usize) {
    let (model, cache, messages) = (model(), TokenizationCache::new(64 << 20), messages(bytes));
    let rendered = || {
        model
            .render(&chat(&messages), SystemTime::UNIX_EPOCH)
            .expect("it renders")
    };
    model
        .complete(
            model.prepare(rendered(), &cache),
            &cache,
            &mut Budget::unlimited(),
        )
        .expect("it tokenizes");
    bencher
        .with_inputs(rendered)
        .bench_local_values(|rendered| black_box(model.prepare(rendered, &cache)));
}

#[divan::bench(args = SIZES)]
fn cold(bencher: Bencher<'_, '_>, bytes: usize) {
    let (model, cache, messages) = (model(), TokenizationCache::new(0), messages(bytes));
    bencher.bench_local(|| {
        let rendered = model
            .render(&chat(&messages), SystemTime::UNIX_EPOCH)
            .expect("it renders");
        black_box(model.complete(model.prepare(rendered, &cache), &cache, &mut Budget::unlimited()))
    });
}
