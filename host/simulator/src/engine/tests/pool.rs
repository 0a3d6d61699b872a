//! One cache of several sizes against the hit ratios of `mooncake-paper.md`, section 10. The trace is not shipped:
//! where it is absent the test prints a notice and passes. The order of evictions is claimed in `cache.rs`.

use std::path::Path;

use crate::engine::cache::BlockCache;
use crate::request::Trace;
use crate::spec::RESEARCH_BLOCKS;

/// Returns the share of blocks that are there when their prompts come.
fn hit_ratio(trace: &Trace, blocks: usize) -> f64 {
    let mut cache = BlockCache::new([blocks, 0, 0]);
    let (mut hits, mut all, mut events) = (0, 0, Vec::new());
    for request in &trace.requests {
        hits += cache.matched(&request.blocks).any;
        all += request.blocks.len();
        cache.insert(&request.blocks, &mut events);
        events.clear();
    }
    hits as f64 / all as f64
}

#[test]
fn one_pool_hits_as_often_as_the_research_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces");
    let path = root.join("conversation_trace.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: there is no {}", path.display());
        return;
    };
    let trace = Trace::from_mooncake("conversation", &text).expect("a trace");
    for (blocks, expected) in [
        (1_000, 0.045),
        (RESEARCH_BLOCKS, 0.136),
        (10_000, 0.212),
        (30_000, 0.326),
        (50_000, 0.355),
        (100_000, 0.364),
        // More than there are.
        (200_000, 0.3664),
    ] {
        let found = hit_ratio(&trace, blocks);
        assert!(
            (found - expected).abs() <= 0.0006,
            "{blocks} blocks: {found} instead of {expected}"
        );
    }
}
