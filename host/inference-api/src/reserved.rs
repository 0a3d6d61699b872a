//! Reserved paths, which no configuration may forward: the table's, the router's own pages, and the engines'
//! administration.

use crate::endpoint::Endpoint;

/// Paths of the router's own pages on the client listener. A path ending in `/` covers all paths below it.
pub const OWN_PATHS: &[&str] = &[
    "/",
    "/admin",
    "/admin/",
    "/health",
    "/instances/",
    "/load",
    "/metrics",
    "/openapi.json",
    "/ping",
    "/readyz",
    "/status",
    "/v1/models",
    "/v1/models/",
    "/v1/responses/",
    "/version",
];

/// Administration pages of the engines (vLLM 0.32 and SGLang 0.5): they stop, change or show the engine itself. The
/// router answers them with an error and never forwards them.
pub const ENGINE_ADMINISTRATION: &[&str] = &[
    "/abort_request",
    "/abort_requests",
    "/adapters",
    "/add_external_corpus",
    "/attach_hicache_storage_backend",
    "/check_weights",
    "/clear_hicache_storage_backend",
    "/close_session",
    "/collective_rpc",
    "/configure_logging",
    "/continue_generation",
    "/destroy_weights_update_group",
    "/detach_hicache_storage_backend",
    "/dump_expert_distribution_record",
    "/finish_weight_update",
    "/flush_cache",
    "/freeze_gc",
    "/get_internal_state",
    "/get_load",
    "/get_model_info",
    "/get_server_info",
    "/get_weights_by_name",
    "/get_world_size",
    "/hicache/storage-backend",
    "/inference/v1/abort_requests",
    "/init_weight_transfer_engine",
    "/init_weights_send_group_for_remote_instance",
    "/init_weights_update_group",
    "/is_paused",
    "/is_scaling_elastic_ep",
    "/is_sleeping",
    "/kv_event_sources",
    "/load_lora_adapter",
    "/load_lora_adapter_from_tensors",
    "/model_info",
    "/open_session",
    "/pause",
    "/pause_generation",
    "/pin_prefix",
    "/release_kv_cache_memory",
    "/release_memory_occupation",
    "/remote_instance_transfer_engine_info",
    "/reset_encoder_cache",
    "/reset_mm_cache",
    "/reset_prefix_cache",
    "/resume",
    "/resume_memory_occupation",
    "/scale_elastic_ep",
    "/send_weights_to_remote_instance",
    "/server_info",
    "/set_internal_state",
    "/set_trace_level",
    "/shutdown_weight_transfer_engine",
    "/sleep",
    "/slow_down",
    "/start_draft_weight_update",
    "/start_expert_distribution_record",
    "/start_profile",
    "/start_weight_update",
    "/stop_expert_distribution_record",
    "/stop_profile",
    "/unload_lora_adapter",
    "/unpin_prefix",
    "/update_weight_version",
    "/update_weights",
    "/update_weights_from_disk",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/update_weights_from_tensor",
    "/v1/load_lora_adapter",
    "/v1/loads",
    "/v1/unload_lora_adapter",
    "/wake_up",
    "/weight_checker",
    "/weight_info",
    "/weights_checker",
];

/// Reason why a path cannot be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Part of the table.
    Served(Endpoint),
    /// A page of the router.
    Own,
    /// A page of the engines' administration.
    Administration,
}

/// Returns the reason why a path cannot be forwarded; the path has no query and no trailing slash.
#[must_use]
pub fn reserved(path: &str) -> Option<Reserved> {
    if let Some(endpoint) = Endpoint::of_path(path) {
        return Some(Reserved::Served(endpoint));
    }
    if is_engine_administration(path) {
        return Some(Reserved::Administration);
    }
    let is_below = |own: &str| own.len() > 1 && own.ends_with('/') && path.starts_with(own);
    let is_own = OWN_PATHS.contains(&path) || OWN_PATHS.iter().any(|own| is_below(own));
    is_own.then_some(Reserved::Own)
}

/// Returns `true` for the pages of [`ENGINE_ADMINISTRATION`] and pages below them.
fn is_engine_administration(path: &str) -> bool {
    let is_at_or_below = |page: &str| {
        let rest = path.strip_prefix(page);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ENGINE_ADMINISTRATION.iter().any(|page| is_at_or_below(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_reserved_by_the_table_the_router_or_the_engines() {
        let check = |path: &str, expected| assert_eq!(reserved(path), expected, "{path}");
        check("/v1/rerank", Some(Reserved::Served(Endpoint::RerankV1)));
        check("/sleep", Some(Reserved::Administration));
        check("/sleep/now", Some(Reserved::Administration));
        check("/adapters/fluent", Some(Reserved::Administration));
        check("/inference/v1/abort_requests", Some(Reserved::Administration));
        check(
            "/v1/responses/render",
            Some(Reserved::Served(Endpoint::RenderResponse)),
        );
        check("/v1/models/m", Some(Reserved::Own));
        check("/admin/reload", Some(Reserved::Own));
        check("/", Some(Reserved::Own));
        check("/sleepy", None);
        check("/v1/custom", None);
    }

    #[test]
    fn the_engines_administration_is_listed_once_and_in_order() {
        assert!(ENGINE_ADMINISTRATION.windows(2).all(|pair| pair[0] < pair[1]));
        let is_served = |path: &str| Endpoint::of_path(path).is_some();
        assert!(!ENGINE_ADMINISTRATION.iter().any(|path| is_served(path)));
    }
}
