//! Hand-over dialect in a server's `/server_info` and `/metrics`.

use memchr::memmem;
use routing::Dialect;
use serde_json::Value;

/// Returns the dialect of a server, and its bootstrap port if present: SGLang 0.5 in a disaggregated role, or vLLM in
/// dev mode, which has its configuration as one text. `None` if the page has neither.
#[must_use]
pub fn server_dialect(page: &[u8]) -> Option<(Dialect, Option<u16>)> {
    let page: Value = serde_json::from_slice(page).ok()?;
    let find = |name: &str| page.get(name).or_else(|| page.get("server_args")?.get(name));
    if let Some(mode) = find("disaggregation_mode").and_then(Value::as_str)
        && matches!(mode, "prefill" | "decode")
    {
        let port = find("disaggregation_bootstrap_port").and_then(Value::as_u64);
        return Some((Dialect::Sglang, port.and_then(|port| u16::try_from(port).ok())));
    }
    let config = page.get("vllm_config")?;
    let config = config.as_str().map_or_else(|| config.to_string(), str::to_owned);
    let connectors = [
        // Several connectors may stand behind vLLM's `MultiConnector`. The first of this list counts.
        ("MooncakeStoreConnector", Dialect::Store),
        ("MooncakeConnector", Dialect::Mooncake),
        ("NixlConnector", Dialect::Nixl),
        ("LMCacheConnectorV1", Dialect::Store),
        ("ExampleConnector", Dialect::Store),
    ];
    let connectors = connectors.into_iter();
    let mut found = connectors.filter(|(name, _)| config.contains(name));
    found.next().map(|(_, dialect)| (dialect, None))
}

/// Returns `true` if the `/metrics` of a server are those of vLLM with a `NixlConnector`.
#[must_use]
pub fn shows_nixl(metrics: &[u8]) -> bool {
    memmem::find(metrics, b"vllm:nixl_").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &str, expected: Option<(Dialect, Option<u16>)>) {
        assert_eq!(server_dialect(page.as_bytes()), expected, "{page}");
    }

    #[test]
    fn a_server_names_its_role_or_its_connector() {
        let sglang = r#"{"disaggregation_mode":"prefill","disaggregation_bootstrap_port":8997}"#;
        check(sglang, Some((Dialect::Sglang, Some(8997))));
        check(
            r#"{"server_args":{"disaggregation_mode":"decode"}}"#,
            Some((Dialect::Sglang, None)),
        );
        check(r#"{"disaggregation_mode":"null"}"#, None);
        let vllm = |connector: &str| {
            format!(
                r#"{{"vllm_config":"kv_transfer_config=KVTransferConfig(kv_connector='{connector}', ...)"}}"#
            )
        };
        check(&vllm("NixlConnector"), Some((Dialect::Nixl, None)));
        check(&vllm("MooncakeConnector"), Some((Dialect::Mooncake, None)));
        check(&vllm("MooncakeStoreConnector"), Some((Dialect::Store, None)));
        check(r#"{"vllm_config":"kv_transfer_config=None"}"#, None);
        check(
            r#"{"vllm_config":{"kv_connector":"NixlConnector"}}"#,
            Some((Dialect::Nixl, None)),
        );
        check("no page", None);
    }

    #[test]
    fn metrics_of_nixl_show_its_connector() {
        assert!(shows_nixl(b"# \xff\nvllm:nixl_xfer_time_seconds_count 1\n"));
        assert!(!shows_nixl(b"vllm:num_requests_running 1\n"));
    }
}
