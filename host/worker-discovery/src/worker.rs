//! Discovered worker, and the properties that its source gives to each worker without its own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use conductor_config::{DataParallel, KvEvents, WorkerConfig, bootstrap_address, worker_address};
use routing::Role;

/// Worker that a source listed.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredWorker {
    /// `http://host:port` or `https://host:port`, in the spelling of the configuration.
    pub url: String,
    /// Role in split requests.
    pub role: Role,
    /// Names of the models it serves; empty for any.
    pub models: Vec<String>,
    /// Relative speed.
    pub weight: f64,
    /// Number of data-parallel ranks behind the URL; `None` for one worker.
    pub ranks: Option<u16>,
    /// A prefill worker's bootstrap server; `None` for the URL's host and the default port.
    pub bootstrap: Option<String>,
    /// Labels for policies.
    pub labels: BTreeMap<String, String>,
}

/// Properties of a source's workers that an entry may replace, and the bound of their number.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerDefaults {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Role in split requests.
    pub role: Role,
    /// Label whose value is the role; `None` for `conductor_role` alone.
    pub role_label: Option<String>,
    /// Names of the models; empty for any.
    pub models: Vec<String>,
    /// Relative speed.
    pub weight: f64,
    /// Number of data-parallel ranks; `None` for one worker.
    pub ranks: Option<u16>,
    /// Most workers of an answer.
    pub max_workers: usize,
}

impl DiscoveredWorker {
    /// Returns the worker at `host:port` with the properties of its source.
    ///
    /// # Errors
    /// The fault of the address.
    pub fn at(address: &str, defaults: &WorkerDefaults) -> Result<Self, String> {
        Ok(Self {
            url: worker_url(address, defaults.scheme)?,
            role: defaults.role,
            models: defaults.models.clone(),
            weight: defaults.weight,
            ranks: defaults.ranks,
            bootstrap: None,
            labels: BTreeMap::new(),
        })
    }

    /// Returns the name: `host:port` of the URL.
    #[must_use]
    pub fn name(&self) -> &str {
        self.url
            .split_once("://")
            .map_or(&*self.url, |(_, address)| address)
    }

    /// Returns the worker as the configuration has it.
    #[must_use]
    pub fn to_config(&self) -> WorkerConfig {
        WorkerConfig {
            name: self.name().to_owned(),
            url: self.url.clone(),
            role: self.role,
            models: self.models.clone(),
            adapters: Vec::new(),
            weight: self.weight,
            drain: false,
            labels: self.labels.clone(),
            bootstrap: self.bootstrap.clone(),
            data_parallel: self.ranks.map(|ranks| DataParallel { ranks, first: 0 }),
            kv_events: KvEvents::Auto,
        }
    }
}

/// Returns the URL of a worker from `host:port` or a URL, in the spelling of the configuration.
fn worker_url(address: &str, scheme: &str) -> Result<String, String> {
    worker_address(&with_scheme(address, scheme))
}

/// Returns the URL of a bootstrap server from `host:port` or a URL, in the spelling of the configuration.
pub(crate) fn bootstrap_url(address: &str) -> Result<String, String> {
    bootstrap_address(&with_scheme(address, "http"))
}

fn with_scheme<'a>(address: &'a str, scheme: &str) -> Cow<'a, str> {
    if address.contains("://") {
        return address.into();
    }
    format!("{scheme}://{address}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::tests::defaults;

    #[test]
    fn a_worker_is_named_by_its_address_and_has_the_properties_of_its_source() {
        let defaults = WorkerDefaults {
            ranks: Some(2),
            weight: 3.0,
            ..defaults()
        };
        let worker = DiscoveredWorker::at("GPU-1:8000", &defaults).unwrap();
        assert_eq!((&*worker.url, worker.name()), ("http://gpu-1:8000", "gpu-1:8000"));
        let config = worker.to_config();
        assert_eq!((&*config.name, config.weight), ("gpu-1:8000", 3.0));
        assert_eq!(config.data_parallel, Some(DataParallel { ranks: 2, first: 0 }));
        assert!(DiscoveredWorker::at("gpu-1:0", &defaults).is_err());
        let own = DiscoveredWorker::at("https://gpu-1:8000", &defaults).unwrap();
        assert_eq!(own.url, "https://gpu-1:8000");
    }
}
