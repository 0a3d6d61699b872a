//! Environment variable of the admin key.

/// Name of the variable.
pub const ADMIN_API_KEY: &str = "ADMIN_API_KEY";

/// Returns true if the environment of this process has an admin key, for a configuration that names none.
#[must_use]
pub fn has_admin_key() -> bool {
    std::env::var_os(ADMIN_API_KEY).is_some_and(|key| !key.is_empty())
}
