//! Compatibility with Mooncake's older programs: text of a `conductor.toml` from their configuration files and flags.
//!
//! [`import`] translates the configuration file and the environment of the older conductors. [`fleet_flags`] translates
//! the flags of the older proxies, and Conductor's own short form of them. Both only write text: the configuration's
//! own parser reads it like any other file.

pub mod fleet_flags;
pub mod import;
mod toml_string;

pub use toml_string::{comment, quoted};

#[cfg(test)]
mod tests {
    use conductor_config::{Config, Diagnostics, Known};

    /// Errors and warnings of a configuration.
    pub(crate) fn diagnostics_of(text: &str) -> Diagnostics {
        let known = Known {
            builtins: &["ttft-queue", "load-weighted", "random", "round-robin"],
            former_builtins: &[],
            default_policy: "ttft-queue",
            files: &[""; 0],
            has_admin_key: false,
        };
        match Config::examine("conductor.toml", text, &known) {
            Ok(examined) => examined.diagnostics,
            Err(mistakes) => mistakes,
        }
    }
}
