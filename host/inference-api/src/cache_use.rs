//! Cache counters of an engine, from its `/metrics` (vLLM 0.32): they distinguish an idle engine from one that works
//! but sends no events.

use std::collections::BTreeMap;

use crate::engine_load::label;

/// Counters of one data-parallel rank since the engine's start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CacheUse {
    /// Prompt tokens that were looked up in the cache and not found.
    pub computed_tokens: f64,
    /// Requests that have ended or are running.
    pub requests: f64,
    /// Block size in tokens, if reported.
    pub block_tokens: Option<u32>,
}

const QUERIES: &str = "vllm:prefix_cache_queries_total{";
const HITS: &str = "vllm:prefix_cache_hits_total{";
const ENDED: &str = "vllm:request_success_total{";
const RUNNING: &str = "vllm:num_requests_running{";
const CACHE: &str = "vllm:cache_config_info{";

/// Returns the counters in vLLM's `/metrics`, by rank; none for other pages.
#[must_use]
pub fn cache_use(page: &str) -> BTreeMap<u16, CacheUse> {
    let mut ranks = BTreeMap::<u16, CacheUse>::new();
    for line in page.lines() {
        let found = [QUERIES, HITS, ENDED, RUNNING, CACHE]
            .into_iter()
            .find_map(|name| Some((name, line.strip_prefix(name)?)));
        let Some((name, rest)) = found else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let rank = label(labels, "engine").and_then(|rank| rank.parse().ok());
        let rank = ranks.entry(rank.unwrap_or(0)).or_default();
        match (name, value.trim().parse::<f64>()) {
            (QUERIES, Ok(tokens)) => rank.computed_tokens += tokens,
            (HITS, Ok(tokens)) => rank.computed_tokens -= tokens,
            (ENDED | RUNNING, Ok(requests)) => rank.requests += requests,
            (CACHE, _) => rank.block_tokens = label(labels, "block_size").and_then(|size| size.parse().ok()),
            _ => {}
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn computed_tokens_are_queries_minus_hits_for_each_rank() {
        let page = "# TYPE vllm:prefix_cache_queries_total counter\n\
            vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 3098.0\n\
            vllm:prefix_cache_queries_total{engine=\"1\",model_name=\"m\"} 1e3\n\
            vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 768.0\n\
            vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"m\"} 4.0\n\
            vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m\"} 2.0\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
            vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 5.0\n\
            vllm:cache_config_info{_block_size_resolved=\"True\",attention_block_size=\"64\",block_size=\"32\",engine=\"0\"} 1.0\n";
        let ranks = cache_use(page);
        assert_eq!(ranks[&0].computed_tokens, 2330.0);
        assert_eq!(ranks[&0].block_tokens, Some(32));
        assert_eq!((ranks[&0].requests, ranks[&1].requests), (9.0, 0.0));
        assert_eq!(ranks[&1].computed_tokens, 1000.0);
        assert_eq!(ranks[&1].block_tokens, None);
    }

    #[test]
    fn pages_that_are_unknown_report_nothing() {
        for page in [
            "",
            "<html>",
            "sglang:prompt_tokens_total{} 7\n",
            "vllm:prefix_cache_hits_total{",
        ] {
            assert!(cache_use(page).is_empty(), "{page}");
        }
    }

    #[test]
    fn the_captured_page_of_vllm_is_read() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http/metrics.http");
        let Ok(page) = fs::read_to_string(path) else {
            println!("skipped: the capture is not there");
            return;
        };
        let ranks = cache_use(&page);
        assert_eq!(ranks[&0].computed_tokens, 3098.0 - 768.0);
        assert_eq!(ranks[&0].block_tokens, Some(32));
    }
}
