//! Benchmark of texts without words, in which a byte-pair tokenizer finds one long word, beside as much ordinary text.
//! It also shows the effect of the budget of a prompt of 50 ms.

use std::fs;
use std::path::Path;

use divan::{Bencher, black_box};
use tokenize::{Budget, FilePaths, Model, Rendered, TokenizationCache};

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

const SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// Budget in steps of a prompt of 50 ms, as in the proxy.
const STEPS: u64 = 5_000_000;

fn tokens(bencher: Bencher<'_, '_>, text: &str, budget: impl Fn() -> Budget<'static>) {
    let (model, cache) = (model(), TokenizationCache::new(0));
    bencher
        .with_inputs(|| Rendered::text(text.to_owned(), false))
        .bench_local_values(|rendered| {
            black_box(model.complete(model.prepare(rendered, &cache), &cache, &mut budget()))
        });
}

fn never() -> bool {
    false
}

#[divan::bench(args = SIZES)]
fn spaces(bencher: Bencher<'_, '_>, bytes: usize) {
    tokens(bencher, &" ".repeat(bytes), Budget::unlimited);
}

#[divan::bench(args = SIZES)]
fn one_letter(bencher: Bencher<'_, '_>, bytes: usize) {
    tokens(bencher, &"a".repeat(bytes), Budget::unlimited);
}

#[divan::bench(args = SIZES)]
fn wide_spaces(bencher: Bencher<'_, '_>, bytes: usize) {
    tokens(bencher, &"\u{3000}".repeat(bytes / 3), Budget::unlimited);
}

#[divan::bench(args = SIZES)]
fn ordinary(bencher: Bencher<'_, '_>, bytes: usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs");
    let source = fs::read_to_string(file).expect("it is here");
    let text: String = source.chars().cycle().take(bytes).collect();
    tokens(bencher, &text, Budget::unlimited);
}

#[divan::bench(args = SIZES)]
fn spaces_within_the_budget(bencher: Bencher<'_, '_>, bytes: usize) {
    tokens(bencher, &" ".repeat(bytes), || Budget::new(STEPS, &never));
}
