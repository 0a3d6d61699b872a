//! Benchmark: cost of hashing one block of 16 tokens by algorithm, beside the bare hash of as many bytes. Run with
//! `cargo bench -p block-hash`.

use block_hash::{Algorithm, RFC_1527_SEED, VllmHasher, sequence_hashes};
use divan::{Bencher, black_box, counter::ItemsCount};
use sha2::{Digest as _, Sha256};

const BLOCK: usize = 16;
const BLOCKS: usize = 2048;

fn main() {
    divan::main();
}

fn tokens() -> Vec<u32> {
    (0..(BLOCKS * BLOCK) as u32)
        .map(|token| token.wrapping_mul(2_654_435_761) % 128_000)
        .collect()
}

/// Hashes 32,768 tokens, chained.
#[divan::bench(args = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])]
fn vllm(bencher: Bencher<'_, '_>, algorithm: &str) {
    let algorithm = Algorithm::named(algorithm).expect("an algorithm's name");
    let mut hasher = VllmHasher::new(algorithm, "0");
    let tokens = tokens();
    bencher.counter(ItemsCount::new(BLOCKS)).bench_local(|| {
        let chain = black_box(&tokens).chunks_exact(BLOCK);
        chain.fold(hasher.root(), |parent, block| hasher.block(&parent, block, &[]))
    });
}

#[divan::bench]
fn rfc_1527(bencher: Bencher<'_, '_>) {
    let tokens = tokens();
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .bench_local(|| sequence_hashes(black_box(&tokens), BLOCK, RFC_1527_SEED));
}

/// Lower bound for any serialisation: SHA-256 of 110 bytes, which are two of its blocks.
#[divan::bench]
fn bare_sha256_of_110_bytes(bencher: Bencher<'_, '_>) {
    let bytes = [7_u8; 110];
    bencher
        .counter(ItemsCount::new(1_usize))
        .bench_local(|| Sha256::digest(black_box(&bytes)));
}
