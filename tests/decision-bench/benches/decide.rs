//! `cargo bench -p decision-bench`: one decision, through WebAssembly and native, by number of candidates; and the
//! boundary alone, crossed by a policy of a few instructions with six columns.

use std::path::Path;

use cache_aware::CacheAware;
use conductor_policy_sdk::Policy;
use decision_bench::{Contest, Crossing, PipelineCrossing, PlacedRequests};
use divan::Bencher;
use pd_pairing::PdPairing;
use round_robin::RoundRobin;
use ttft_queue::TtftQueue;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const CANDIDATES: [usize; 4] = [8, 64, 256, 1024];

fn main() {
    divan::main();
}

#[divan::bench(types = [CacheAware, PdPairing, RoundRobin, TtftQueue], args = CANDIDATES, sample_size = 100)]
fn wasm<P: Policy>(bencher: Bencher<'_, '_>, candidates: usize) {
    let contest = Contest::<P>::new(candidates);
    measure(bencher, |seq| contest.call_wasm(seq));
}

/// Decisions with recording of the policy's host calls.
#[divan::bench(types = [CacheAware, RoundRobin], args = CANDIDATES, sample_size = 100)]
fn recording<P: Policy>(bencher: Bencher<'_, '_>, candidates: usize) {
    let contest = Contest::<P>::new(candidates);
    measure(bencher, |seq| contest.call_recording(seq));
}

#[divan::bench(types = [CacheAware, PdPairing, RoundRobin, TtftQueue], args = CANDIDATES, sample_size = 100)]
fn native<P: Policy>(bencher: Bencher<'_, '_>, candidates: usize) {
    let contest = Contest::<P>::new(candidates);
    measure(bencher, |seq| contest.call_native(seq));
}

#[divan::bench(args = CANDIDATES, sample_size = 100)]
fn boundary(bencher: Bencher<'_, '_>, candidates: usize) {
    let crossing = Crossing::new(&component(include_str!("boundary.wat")), 6, candidates);
    measure(bencher, |seq| crossing.call(seq));
}

/// Measures two scorers and a column, put together by the host.
#[divan::bench(args = CANDIDATES, sample_size = 100)]
fn pipeline(bencher: Bencher<'_, '_>, candidates: usize) {
    let crossing = PipelineCrossing::new(candidates);
    measure(bencher, |seq| crossing.call(seq));
}

/// Whole decisions by the default policy, with its columns kept from one to the next.
#[divan::bench(args = CANDIDATES, sample_size = 100)]
fn whole_kept(bencher: Bencher<'_, '_>, candidates: usize) {
    whole(bencher, candidates, true);
}

/// The same, with a new layout each.
#[divan::bench(args = CANDIDATES, sample_size = 100)]
fn whole_new(bencher: Bencher<'_, '_>, candidates: usize) {
    whole(bencher, candidates, false);
}

fn whole(bencher: Bencher<'_, '_>, candidates: usize, keeps: bool) {
    let mut requests = PlacedRequests::new(candidates, keeps);
    let mut place = || requests.place().expect("the policy routes");
    (0..1_000).for_each(|_| {
        place();
    });
    bencher.bench_local(place);
}

/// Measures calls with consecutive numbers, after the first calls, which create the instance and its memory. If they
/// were timed, the bench would take every call for slow.
fn measure<T>(bencher: Bencher<'_, '_>, call: impl Fn(u64) -> T) {
    (1..=1000).for_each(|seq| drop(call(seq)));
    let mut seq = 0;
    bencher.bench_local(|| {
        seq += 1;
        call(seq)
    });
}

/// Returns a module of text as a component for the project's contract.
fn component(module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_path(contract).expect("the contract is valid");
    let world = resolve.select_world(&[package], Some("scheduler"));
    let world = world.expect("the contract has that world");
    let mut bytes = wat::parse_str(module).expect("the module is valid");
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be embedded");
    let encoder = ComponentEncoder::default();
    let mut encoder = encoder.module(&bytes).expect("the module fits the world");
    encoder.encode().expect("the component can be written")
}
