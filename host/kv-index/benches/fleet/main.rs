//! A fleet of 128 engines under a router, measured: questions, events, memory, workers that leave, all of it beside
//! what the machine's memory and hash cost, and beside two baselines in the same process. See `../README.md`.
//!
//! `cargo bench -p kv-index --bench fleet` takes the conversation trace once (5.8M blocks) or, where it is not there,
//! sessions made up; `-- --full` takes it eight times (47M); `-- --made-up` leaves the trace aside; `-- --only ours`
//! leaves the baselines out.

mod alongside;
mod changes;
mod corpus;
mod figures;
mod fleet;
mod jump_index;
mod machine;
mod plain_map;
mod queries;
mod random;
mod session;
mod small;
mod subject;

use std::path::Path;

use corpus::Corpus;
use figures::{Figure, print};
use jump_index::JumpIndex;
use machine::Machine;
use plain_map::PlainMap;
use session::{Scale, Session};
use subject::{Ours, Subject};

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/data/traces/conversation_trace.jsonl"
);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let reported = |name: &str| args.iter().any(|arg| arg == name);
    let scale = if reported("--full") {
        Scale {
            copies: 8,
            prompts: 3000,
            changes: 4_000_000,
        }
    } else {
        Scale {
            copies: 1,
            prompts: 800,
            changes: 1_000_000,
        }
    };
    let machine = Machine::measure();
    let corpus = if reported("--made-up") {
        Corpus::made_up(12_000)
    } else {
        Corpus::load(Path::new(TRACE))
    };
    println!(
        "{} x{}: {} requests, {} distinct blocks of 16 tokens",
        corpus.source,
        scale.copies,
        corpus.requests.len() * scale.copies as usize,
        corpus.pieces as usize * scale.copies as usize * corpus::PIECE
    );
    let mut subjects = vec![(Ours::NAME, ours(&machine, &corpus, scale))];
    if !reported("ours") {
        subjects.push((PlainMap::NAME, baseline::<PlainMap>(&machine, &corpus, scale)));
        subjects.push((JumpIndex::NAME, baseline::<JumpIndex>(&machine, &corpus, scale)));
    }
    print(&machine, &subjects);
}

fn ours(machine: &Machine, corpus: &Corpus, scale: Scale) -> Vec<Figure> {
    let small = small::removals(machine, corpus);
    let mut session = Session::<Ours>::load(machine, corpus, scale);
    session.own_memory();
    session.queries();
    session.alongside();
    session.changes();
    session.figures.extend(small);
    session.figures
}

fn baseline<S: Subject>(machine: &Machine, corpus: &Corpus, scale: Scale) -> Vec<Figure> {
    let mut session = Session::<S>::load(machine, corpus, scale);
    session.queries();
    session.changes();
    session.figures
}
