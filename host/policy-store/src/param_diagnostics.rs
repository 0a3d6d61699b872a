//! Diagnostics of refused parameters, at their places in the configuration.

use conductor_config::{Code, Diagnostic, PolicyConfig};
use policy_runtime::{ParamFault, ParamFaults, ParamPlace};

/// Returns a diagnostic for each parameter or value that the policy refuses.
#[must_use]
pub fn param_diagnostics(policy: &PolicyConfig, faults: &ParamFaults) -> Vec<Diagnostic> {
    let diagnostic = |fault: &ParamFault| {
        let written = policy.param_place(&fault.name);
        let at = match (fault.place, written) {
            (ParamPlace::Name, Some(written)) => &written.key,
            (ParamPlace::Value, Some(written)) => &written.value,
            _ => policy.settings_at(),
        };
        let message = format!("policy `{}`: {}", policy.name, fault.message);
        Diagnostic::new(Code::RefusedParam, at, message, fault.help.clone())
    };
    let mut diagnostics: Vec<Diagnostic> = faults.faults.iter().map(diagnostic).collect();
    diagnostics.sort_by_key(|item| item.primary.location);
    diagnostics
}
