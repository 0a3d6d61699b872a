//! Parameters and limits of a policy, from the command line or from a configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use conductor_config::{Config, Diagnostics, Known, PolicyConfig, PolicyFiles};
use policy_runtime::PolicySettings;
use thiserror::Error;

use super::diagnostic::Diagnostic;
use crate::args::SettingsArgs;
use local_files::{ConfigSource, ReadConfigError, has_admin_key};
use policy_store::builtin;
use policy_store::policy_settings;

/// Settings and where they come from.
#[derive(Debug, Default)]
pub(super) struct GivenSettings {
    /// Settings for the runtime.
    pub(super) settings: PolicySettings,
    /// Configuration file and its policy, if it has one.
    pub(super) configured: Option<(String, PolicyConfig)>,
    /// Address of the configuration's admin listener.
    admin: Option<SocketAddr>,
}

impl GivenSettings {
    /// Returns the URL of the admin listener that the configuration names. A listener on every address is reached on
    /// loopback. `None` without a configuration, an admin listener or a fixed port.
    pub(super) fn admin_url(&self) -> Option<String> {
        let mut address = self.admin.filter(|address| address.port() != 0)?;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            IpAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
        Some(format!("http://{address}"))
    }
}

/// No settings can be had.
#[derive(Debug, Error)]
pub(crate) enum SettingsError {
    /// The parameters are no JSON.
    #[error("failed to read --params as JSON")]
    NotJson(#[source] serde_json::Error),
    /// They are JSON, but no table.
    #[error("failed to take --params: it must be a JSON object, such as '{{\"weight\": 2}}'")]
    NotAnObject,
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadConfigError),
    /// The file has no such policy.
    #[error(
        "failed to find the policy `{name}` in `{config}`: it has {}; name one with --name, or add [policies.{name}]",
        list(known)
    )]
    NoSuchPolicy {
        /// The policy.
        name: String,
        /// The file.
        config: String,
        /// Policies of the file.
        known: Vec<String>,
    },
}

/// Either settings, or the mistakes of the file that should have them.
pub(super) type SettingsOrMistakes = Result<GivenSettings, Vec<Diagnostic>>;

/// Reads the settings of a policy whose component has this name.
pub(super) fn read(args: &SettingsArgs, component: &str) -> Result<SettingsOrMistakes, SettingsError> {
    match &args.config {
        Some(config) => from_config(config, args.name.as_deref().unwrap_or(component)),
        None => Ok(Ok(GivenSettings {
            settings: from_flags(args)?,
            ..GivenSettings::default()
        })),
    }
}

fn from_flags(args: &SettingsArgs) -> Result<PolicySettings, SettingsError> {
    let default = PolicySettings::default();
    let cpu_budget = args
        .cpu_ms
        .map_or(default.cpu_budget, |ms| Duration::from_millis(ms.into()));
    Ok(PolicySettings {
        params_json: params(args.params.as_deref())?,
        cpu_budget,
        wall_limit: default.wall_limit.max(cpu_budget),
        memory_bytes: args
            .memory_mib
            .map_or(default.memory_bytes, |mib| (mib as usize) << 20),
    })
}

fn params(text: Option<&str>) -> Result<String, SettingsError> {
    let Some(text) = text else {
        return Ok("{}".to_owned());
    };
    match serde_json::from_str(text).map_err(SettingsError::NotJson)? {
        serde_json::Value::Object(params) => Ok(serde_json::Value::Object(params).to_string()),
        _ => Err(SettingsError::NotAnObject),
    }
}

/// Reads a configuration in which the component stands for the policy of that name.
fn parse(source: &ConfigSource, name: &str) -> Result<Result<Config, Diagnostics>, SettingsError> {
    let text = source.read()?;
    let known = Known {
        builtins: &builtin::names(),
        former_builtins: builtin::FORMER_NAMES,
        default_policy: builtin::DEFAULT,
        files: &WithComponent { source, name },
        has_admin_key: has_admin_key(),
    };
    Ok(Config::parse(&source.name(), &text, &known).map(|parsed| parsed.config))
}

fn from_config(path: &Path, name: &str) -> Result<SettingsOrMistakes, SettingsError> {
    let source = ConfigSource::File(path.to_owned());
    let config = match parse(&source, name)? {
        Ok(config) => config,
        Err(mistakes) => return Ok(Err(findings(&source, &mistakes))),
    };
    let admin = config.server.admin_listen;
    if let Some(policy) = config.policies.iter().find(|policy| policy.name == name) {
        return Ok(Ok(GivenSettings {
            settings: policy_settings(policy),
            configured: Some((source.name(), policy.clone())),
            admin,
        }));
    }
    if config.policy_dir.is_some() {
        // The configuration does not name it: it comes from the folder, with default settings.
        return Ok(Ok(GivenSettings {
            admin,
            ..GivenSettings::default()
        }));
    }
    Err(SettingsError::NoSuchPolicy {
        name: name.to_owned(),
        config: source.name(),
        known: config.policies.into_iter().map(|policy| policy.name).collect(),
    })
}

fn findings(source: &ConfigSource, mistakes: &Diagnostics) -> Vec<Diagnostic> {
    let name = source.name();
    mistakes
        .items()
        .iter()
        .map(|mistake| Diagnostic::of_config(&name, mistake))
        .collect()
}

fn list(known: &[String]) -> String {
    if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    }
}

/// Policy folder with one more component that is about to be put there.
#[derive(Debug)]
struct WithComponent<'a> {
    source: &'a ConfigSource,
    name: &'a str,
}

impl PolicyFiles for WithComponent<'_> {
    fn names_in(&self, folder: &Path) -> Vec<String> {
        let mut names = self.source.names_in(folder);
        if names.iter().all(|name| name != self.name) {
            names.push(self.name.to_owned());
        }
        names
    }
}
