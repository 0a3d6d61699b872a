//! Names of shadow copies of policies.

/// Suffix of a shadow copy.
const SHADOW: &str = " (shadow)";

/// Returns the name of a policy's second copy, which runs as a shadow with instances, a circuit and a state of its own.
/// No policy of a configuration can have that name.
#[must_use]
pub fn shadow_name(policy: &str) -> String {
    format!("{policy}{SHADOW}")
}

/// Returns the policy of which `name` is the shadow copy.
#[must_use]
pub fn shadowed(name: &str) -> Option<&str> {
    name.strip_suffix(SHADOW)
}
