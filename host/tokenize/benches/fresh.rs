//! Benchmark of a long new prompt (100,000 tokens are about 400 KB): this crate, and `tokenizers` alone. The words are
//! known, as those of a language are after a router's first minutes; the text is not.

use std::fs;
use std::path::Path;
use std::str::FromStr as _;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use tokenize::{Budget, FilePaths, Model, Rendered, TokenizationCache};
use tokenizers::Tokenizer;

fn main() {
    divan::main();
}

const SIZES: [usize; 2] = [32 << 10, 400_000];

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny")
}

/// Returns so many bytes of code and prose: the words of this crate's files in another order each time.
fn texts(bytes: usize) -> impl FnMut() -> String {
    let files = ["model", "chat", "prompt", "template", "value", "fast_path"];
    let read = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{name}.rs"));
        fs::read_to_string(file).expect("it is here")
    };
    let source: Vec<String> = files.iter().map(|name| read(name)).collect();
    let mut words: Vec<String> = source.concat().split_inclusive(' ').map(str::to_owned).collect();
    move || {
        words.rotate_left(97);
        let mut text: String = words.iter().map(String::as_str).cycle().take(bytes / 4).collect();
        text.truncate(text.floor_char_boundary(bytes));
        text
    }
}

#[divan::bench(args = SIZES)]
fn conductor(bencher: Bencher<'_, '_>, bytes: usize) {
    let paths = FilePaths {
        tokenizer: folder(),
        chat_template: None,
    };
    let model = Model::load(&paths.read().expect("the fixture is there"), None).expect("it loads");
    let cache = TokenizationCache::new(8 << 20);
    bencher
        .with_inputs(texts(bytes))
        .input_counter(BytesCount::of_str)
        .bench_local_values(|text| {
            let prepared = model.prepare(Rendered::text(text, true), &cache);
            black_box(model.complete(prepared, &cache, &mut Budget::unlimited()))
        });
}

#[divan::bench(args = SIZES)]
fn tokenizers_alone(bencher: Bencher<'_, '_>, bytes: usize) {
    let json = fs::read_to_string(folder().join("tokenizer.json")).expect("the fixture is there");
    let tokenizer = Tokenizer::from_str(&json).expect("it loads");
    bencher
        .with_inputs(texts(bytes))
        .input_counter(BytesCount::of_str)
        .bench_local_values(|text| black_box(tokenizer.encode_fast(text, true)));
}
