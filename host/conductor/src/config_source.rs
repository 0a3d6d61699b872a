//! Where the configuration's text comes from.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use conductor_config::PolicyFiles;
use thiserror::Error;

use crate::cli::ServeArgs;
use crate::policy_library::policies_in;

/// A configuration file, or text that stands for one.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// Read again whenever it changes.
    File(PathBuf),
    /// Made from flags; never changes.
    Text(String),
}

/// The text could not be had.
#[derive(Debug, Error)]
#[error("failed to read the configuration `{}`", path.display())]
pub struct ReadConfigError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A `--worker` flag that makes no sense.
#[derive(Debug, Error)]
pub(crate) enum WorkerFlagError {
    /// A key that is not known.
    #[error(
        "failed to understand `{option}` in `--worker {flag}`: known are kv-events=ENDPOINT and kv-replay=ENDPOINT"
    )]
    UnknownOption {
        /// The part after a comma.
        option: String,
        /// The whole flag.
        flag: String,
    },
}

impl ConfigSource {
    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "command line".to_owned(),
        }
    }

    /// The text as it is now.
    ///
    /// # Errors
    /// [`ReadConfigError`].
    pub fn read(&self) -> Result<String, ReadConfigError> {
        match self {
            Self::File(path) => fs::read_to_string(path).map_err(|source| ReadConfigError {
                path: path.clone(),
                source,
            }),
            Self::Text(text) => Ok(text.clone()),
        }
    }

    /// The file to watch, where there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) => None,
        }
    }

    /// A path of the configuration: relative ones are relative to the file's folder.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self.file().and_then(Path::parent) {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        }
    }
}

impl PolicyFiles for ConfigSource {
    fn names_in(&self, folder: &Path) -> Vec<String> {
        let found = policies_in(&self.resolve(folder)).into_iter();
        found.map(|(name, _)| name).collect()
    }
}

/// The configuration that the quick flags mean.
///
/// # Errors
/// [`WorkerFlagError`] for the first flag that makes no sense; addresses are judged by the configuration's own check.
pub(crate) fn from_flags(args: &ServeArgs) -> Result<String, WorkerFlagError> {
    let mut text = String::from("# The configuration these flags mean.\n");
    if let Some(listen) = args.listen {
        let admin = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port_beside(listen));
        let _ = write!(
            text,
            "[server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\n\n"
        );
    }
    for flag in &args.worker {
        let mut parts = flag.split(',');
        let url = parts.next().unwrap_or_default();
        let _ = writeln!(text, "[[pools.default.workers]]\nurl = {url:?}");
        for option in parts {
            match option.split_once('=') {
                Some((key @ ("kv-events" | "kv-replay"), endpoint)) => {
                    let _ = writeln!(text, "{key} = {endpoint:?}");
                }
                _ => {
                    return Err(WorkerFlagError::UnknownOption {
                        option: option.to_owned(),
                        flag: flag.clone(),
                    });
                }
            }
        }
        text.push('\n');
    }
    let policy = args.policy.as_deref().unwrap_or("cache-aware");
    let _ = writeln!(text, "[[routes]]\npool = \"default\"\npolicy = {policy:?}");
    Ok(text)
}

/// Where the admin pages are unless told: the port after the clients', as with the default addresses. Any port where
/// there is none after it, or the clients' is any.
pub(crate) fn port_beside(listen: SocketAddr) -> u16 {
    match listen.port() {
        0 => 0,
        port => port.checked_add(1).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(workers: &[&str]) -> ServeArgs {
        ServeArgs {
            worker: workers.iter().map(|&worker| worker.to_owned()).collect(),
            ..ServeArgs::default()
        }
    }

    #[test]
    fn flags_become_a_valid_configuration() {
        let text = from_flags(&ServeArgs {
            policy: Some("round-robin".into()),
            ..args(&[
                "http://127.0.0.1:1",
                "http://127.0.0.1:2,kv-events=tcp://127.0.0.1:3,kv-replay=tcp://127.0.0.1:4",
            ])
        })
        .unwrap();
        let checked = crate::check(&ConfigSource::Text(text.clone())).unwrap();
        assert_eq!(checked.rendered, "", "{text}");
        assert!(text.contains("policy = \"round-robin\""));
    }

    #[test]
    fn the_admin_pages_are_on_the_port_beside_on_this_machine_only() {
        let check = |listen: &str, admin: &str| {
            let text = from_flags(&ServeArgs {
                listen: Some(listen.parse().unwrap()),
                ..args(&["http://127.0.0.1:1"])
            })
            .unwrap();
            assert!(
                text.contains(&format!("admin-listen = \"127.0.0.1:{admin}\"")),
                "{text}"
            );
        };
        check("0.0.0.0:9000", "9001");
        check("127.0.0.1:65535", "0");
        check("127.0.0.1:0", "0");
    }

    #[test]
    fn an_unknown_option_of_a_worker_is_named() {
        let error = from_flags(&args(&["http://127.0.0.1:1,weight=2"])).unwrap_err();
        assert!(error.to_string().contains("weight=2"), "{error}");
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let source = ConfigSource::File("/etc/conductor/conductor.toml".into());
        assert_eq!(
            source.resolve(Path::new("policies.d")),
            Path::new("/etc/conductor/policies.d")
        );
        assert_eq!(source.resolve(Path::new("/var/p")), Path::new("/var/p"));
    }
}
