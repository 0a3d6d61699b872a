//! Known numbers of requests and candidates, and their defaults in tests.

use std::collections::BTreeMap;

use crate::hash::mix;

/// Column of [`Plan::roles`].
pub(super) const ROLE: &str = "worker.role";

/// Numbers of the request and their defaults.
pub(super) const REQUEST: &[(&str, f64)] = &[
    ("request.prompt-tokens", f64::NAN),
    ("request.max-tokens", f64::NAN),
    ("request.body-bytes", 0.0),
    ("request.priority", f64::NAN),
    ("request.stream", 0.0),
    ("request.waited-ms", 0.0),
    // Default of `pd.alone`.
    ("request.decode-alone", 1.0),
    ("request.tried", 0.0),
    ("request.hold-left-ms", f64::NAN),
    ("request.ttft-target-ms", f64::NAN),
    ("prefix.best-tokens", f64::NAN),
    ("prefix.key-64", f64::NAN),
    ("prefix.key-128", f64::NAN),
    ("prefix.key-256", f64::NAN),
    ("prefix.key-512", f64::NAN),
    ("prefix.key-1024", f64::NAN),
    ("prefix.key-2048", f64::NAN),
    ("prefix.key-4096", f64::NAN),
    ("prefix.key-8192", f64::NAN),
    ("prefix.key-16384", f64::NAN),
    ("pool.queued", 0.0),
    ("pool.workers", 0.0),
];

/// Numbers of a candidate and their defaults; `label.KEY` is NaN.
pub(super) const CANDIDATE: &[(&str, f64)] = &[
    ("worker.weight", 1.0),
    (ROLE, 0.0),
    ("worker.dp-rank", f64::NAN),
    ("worker.name-hash", 0.0),
    ("worker.age-ms", 0.0),
    ("worker.failures", 0.0),
    ("load.requests", 0.0),
    ("load.queued", 0.0),
    ("load.prefill-tokens", 0.0),
    ("load.decoding", 0.0),
    ("load.decoding-tokens", 0.0),
    ("load.prompt-tokens", 0.0),
    ("ttft.ewma-ms", f64::NAN),
    ("ttft.p90-ms", f64::NAN),
    ("tbt.ewma-ms", f64::NAN),
    ("prefix.device-tokens", f64::NAN),
    ("prefix.host-tokens", f64::NAN),
    ("prefix.any-tokens", f64::NAN),
    ("cache.blocks", f64::NAN),
    ("cost.prefill-ms", f64::NAN),
    ("cost.token-ms", f64::NAN),
    ("cost.transfer-ms", f64::NAN),
    ("cost.tbt-ms", f64::NAN),
    ("cost.request-ms", f64::NAN),
    ("cost.fetched-share", f64::NAN),
    ("engine.running", f64::NAN),
    ("engine.waiting", f64::NAN),
    ("engine.kv-usage", f64::NAN),
    ("engine.kv-tokens", f64::NAN),
    ("engine.age-ms", f64::NAN),
];

/// Tokens for each number of a scenario's prompt: the length of the shortest key.
pub(super) const PIECE_TOKENS: f64 = 64.0;

/// Computes the prefix keys of a prompt with these pieces; NaN for an empty prompt.
pub(super) fn prefix_keys(pieces: &[u64]) -> impl Iterator<Item = (&'static str, f64)> {
    let keys = REQUEST.iter().filter_map(|(feature, _)| {
        let tokens: usize = feature.strip_prefix("prefix.key-")?.parse().ok()?;
        Some((*feature, tokens / PIECE_TOKENS as usize))
    });
    keys.map(|(feature, count)| {
        let hash = pieces.iter().take(count).fold(0, |hash, piece| mix(hash, *piece));
        let key = if pieces.is_empty() {
            f64::NAN
        } else {
            (hash >> 11) as f64
        };
        (feature, key)
    })
}

/// Looks up a number: set by the test, derived from others, or the default. An optional name may be unknown.
pub(super) fn look_up(
    numbers: &BTreeMap<String, f64>,
    defaults: &[(&str, f64)],
    name: &str,
    follows: impl Fn(&str) -> Option<f64>,
) -> f64 {
    let bare = name.trim_end_matches('?');
    let is_optional = bare.len() < name.len();
    let known = numbers.get(bare).copied().or_else(|| follows(bare));
    known.unwrap_or_else(|| match is_optional {
        true => f64::NAN,
        false => default_of(defaults, bare),
    })
}

/// Returns the default of a feature. Panics for a name that is neither in the table nor a label's.
pub(super) fn default_of(defaults: &[(&str, f64)], feature: &str) -> f64 {
    if feature.starts_with("label.") {
        return f64::NAN;
    }
    let known = defaults.iter().find(|(name, _)| *name == feature);
    assert!(known.is_some(), "unknown feature `{feature}`");
    known.map_or(f64::NAN, |(_, default)| *default)
}
