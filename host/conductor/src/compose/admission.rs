//! Admission limits of pools and objectives of routes, as specs.

use conductor_config::{AdmissionConfig, BudgetConfig, ObjectivesConfig};
use proxy::{AdmissionSpec, BudgetSpec, Objectives};

pub(super) fn admission_spec(config: &AdmissionConfig) -> AdmissionSpec {
    AdmissionSpec {
        requests: budget(config.requests, Some(config.requests_per_worker)),
        tokens: budget(config.tokens, config.tokens_per_worker),
        expected_output: config.expected_output,
        ttft_target: config.ttft_target,
        tbt_target: config.tbt_target,
        early_rejection: config.early_rejection,
        priority_header: config.priority_header.clone(),
        priority_in_body: config.priority_in_body,
        tenant_header: config.tenant_header.clone(),
        timeout_header: config.timeout_header.clone(),
    }
}

fn budget(config: BudgetConfig, per_worker: Option<u64>) -> BudgetSpec {
    match config {
        BudgetConfig::Off => BudgetSpec::Off,
        BudgetConfig::Fixed(limit) => BudgetSpec::Fixed(limit),
        BudgetConfig::Auto => BudgetSpec::Auto { per_worker },
    }
}

pub(super) fn objectives(config: ObjectivesConfig) -> Objectives {
    Objectives {
        priority: config.priority,
        ttft_target: config.ttft_target,
        tbt_target: config.tbt_target,
        start_timeout: config.start_timeout,
    }
}
