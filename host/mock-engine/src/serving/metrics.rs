//! `/metrics`: those of vLLM's metrics that routers read, with vLLM's names and labels.

use std::fmt::Write;

use crate::config::MockConfig;
use crate::stats::MockStats;
use crate::transfer::PdDialect;

/// Returns the page.
pub(crate) fn page(config: &MockConfig, stats: &MockStats) -> String {
    let usage = stats.blocks_used as f64 / f64::from(config.cache_blocks);
    let mut page = Page::new(config);
    page.gauge(
        "num_requests_running",
        "Requests being computed.",
        stats.running as f64,
    );
    page.gauge("num_requests_waiting", "Requests waiting.", stats.waiting as f64);
    page.gauge(
        "kv_cache_usage_perc",
        "Used share of the KV cache; 1 is all.",
        usage,
    );
    page.counter(
        "prefix_cache_queries_total",
        "Prompt tokens looked up.",
        stats.prompt_tokens,
    );
    page.counter(
        "prefix_cache_hits_total",
        "Prompt tokens found.",
        stats.cached_tokens,
    );
    page.counter("prompt_tokens_total", "Prompt tokens.", stats.prompt_tokens);
    page.counter(
        "generation_tokens_total",
        "Tokens generated.",
        stats.generated_tokens,
    );
    page.counter("num_preemptions_total", "Sequences preempted.", stats.preemptions);
    page.cache_config(config);
    if config.pd.as_ref().is_some_and(|pd| pd.dialect == PdDialect::Nixl) {
        // A metric family that vLLM has from its start if the connector is configured.
        page.counter(
            "nixl_xfer_time_seconds_count",
            "Histogram of transfer duration for NIXL KV Cache transfers.",
            0,
        );
    }
    page.text
}

struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn new(config: &MockConfig) -> Self {
        let model = config
            .model
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n");
        Self {
            text: String::new(),
            labels: format!("engine=\"{}\",model_name=\"{model}\"", config.dp_rank),
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let labels = self.labels.clone();
        self.metric(name, help, "gauge", &labels, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let labels = self.labels.clone();
        self.metric(name, help, "counter", &labels, value as f64);
    }

    fn cache_config(&mut self, config: &MockConfig) {
        let labels = format!(
            "block_size=\"{}\",enable_prefix_caching=\"True\",engine=\"{}\",num_gpu_blocks=\"{}\"",
            config.block_size, config.dp_rank, config.cache_blocks
        );
        self.metric("cache_config_info", "The cache.", "gauge", &labels, 1.0);
    }

    fn metric(&mut self, name: &str, help: &str, kind: &str, labels: &str, value: f64) {
        // Writing to a string cannot fail. `{:?}` keeps the `.0` of Prometheus' Python client.
        let _ = write!(
            self.text,
            "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}\nvllm:{name}{{{labels}}} {value:?}\n"
        );
    }
}
