//! Metadata that objects share, and the view that makes workers of an object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{endpoint_slice, pod};
use crate::attributes::Attributes;
use crate::decoded::Decoded;
use crate::worker::WorkerDefaults;

/// Prefixes of labels that Kubernetes' own controllers write.
const OWN_PREFIXES: [&str; 6] = [
    "apps.kubernetes.io",
    "endpoints.kubernetes.io",
    "endpointslice.kubernetes.io",
    "kubernetes.io",
    "service.kubernetes.io",
    "statefulset.kubernetes.io",
];
/// Labels that Kubernetes' own controllers write, without a prefix.
const OWN_LABELS: [&str; 3] = [
    "controller-revision-hash",
    "pod-template-generation",
    "pod-template-hash",
];
/// Prefix of the annotations that are properties of a worker.
const PROPERTY_PREFIX: &str = "conductor/";

/// View of a list: the kind of its objects, the port of a worker, and the properties of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeView {
    /// Set for EndpointSlices, unset for pods.
    pub is_slices: bool,
    /// Name or number of the port; `None` for the only one.
    pub port: Option<String>,
    /// Properties of the workers.
    pub defaults: WorkerDefaults,
}

/// Metadata of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectMeta {
    pub(super) name: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl ObjectMeta {
    /// Returns the attributes of the object's workers: its labels, and properties among its annotations.
    pub(super) fn attributes(&self, defaults: &WorkerDefaults) -> Result<Attributes, String> {
        let labels = self.labels.iter().flatten();
        let labels = labels.filter(|(name, _)| !is_own(name));
        let annotations = self.annotations.iter().flatten();
        let properties = annotations.filter(|(name, _)| name.starts_with(PROPERTY_PREFIX));
        let all = labels.chain(properties);
        Attributes::read(all.map(|(name, value)| (&**name, &**value)), defaults)
    }
}

/// Returns true for a label of Kubernetes' own controllers.
fn is_own(label: &str) -> bool {
    match label.split_once('/') {
        Some((prefix, _)) => OWN_PREFIXES.contains(&prefix),
        None => OWN_LABELS.contains(&label),
    }
}

/// Workers of an object.
#[derive(Debug)]
pub(super) struct KubeWorkers {
    pub(super) workers: Decoded,
    pub(super) family: AddressFamily,
}

/// Family of an object's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressFamily {
    /// IPv4, at least one.
    V4,
    /// IPv6.
    V6,
    /// Names, addresses of pods, or none.
    Other,
}

impl KubeView {
    /// Returns the workers of an object.
    pub(super) fn workers(&self, object: Value) -> KubeWorkers {
        match self.is_slices {
            true => KubeWorkers {
                family: endpoint_slice::family(&object),
                workers: endpoint_slice::workers(object, self),
            },
            false => KubeWorkers {
                family: AddressFamily::Other,
                workers: pod::workers(object, self),
            },
        }
    }

    /// Chooses the port among those of an object, each with its name.
    ///
    /// # Errors
    /// Reason for which none can be chosen.
    pub(super) fn choose_port(&self, ports: &[(&str, u16)]) -> Result<u16, String> {
        let Some(wanted) = &self.port else {
            return match ports {
                [(_, port)] => Ok(*port),
                [] => Err("it has no port: name one by `port`".to_owned()),
                several => {
                    let names: Vec<String> = several
                        .iter()
                        .map(|(name, port)| format!("{port} `{name}`"))
                        .collect();
                    Err(format!(
                        "it has several ports, {}: choose one by `port`",
                        names.join(", ")
                    ))
                }
            };
        };
        let named = ports.iter().find(|(name, _)| name == wanted);
        let number = wanted.parse().ok();
        let named = named.map(|(_, port)| *port).or(number);
        named.ok_or_else(|| format!("it has no port with the name `{wanted}`"))
    }
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub(super) fn host_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::attributes::tests::defaults;

    pub(crate) fn view(is_slices: bool, port: Option<&str>) -> KubeView {
        KubeView {
            is_slices,
            port: port.map(str::to_owned),
            defaults: defaults(),
        }
    }

    #[test]
    fn a_port_is_chosen_by_name_by_number_or_as_the_only_one() {
        let ports = [("http", 8000), ("metrics", 9090)];
        let choose = |port, ports: &[(&str, u16)]| view(true, port).choose_port(ports);
        assert_eq!(choose(Some("metrics"), &ports), Ok(9090));
        assert_eq!(choose(Some("7000"), &ports), Ok(7000));
        assert_eq!(choose(None, &ports[..1]), Ok(8000));
        assert!(choose(None, &ports).unwrap_err().contains("9090 `metrics`"));
        assert!(choose(None, &[]).is_err());
        assert!(choose(Some("grpc"), &ports).unwrap_err().contains("grpc"));
    }
}
