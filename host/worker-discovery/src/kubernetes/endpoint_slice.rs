//! EndpointSlice: addresses of a Service's endpoints with their conditions, and the ports of them all.

use serde::Deserialize;
use serde_json::Value;

use super::object::{AddressFamily, KubeView, ObjectMeta, host_port};
use crate::attributes::Attributes;
use crate::decoded::Decoded;
use crate::worker::DiscoveredWorker;

/// `discovery.k8s.io/v1` EndpointSlice, its fields that make workers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
    #[serde(default)]
    target_ref: Option<TargetRef>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TargetRef {
    kind: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SlicePort {
    name: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
}

/// Returns the family of a slice's addresses.
pub(super) fn family(object: &Value) -> AddressFamily {
    let endpoints = object["endpoints"].as_array();
    let has_endpoints = endpoints.is_some_and(|endpoints| !endpoints.is_empty());
    match object["addressType"].as_str() {
        Some("IPv4") if has_endpoints => AddressFamily::V4,
        Some("IPv6") => AddressFamily::V6,
        _ => AddressFamily::Other,
    }
}

/// Returns the workers of a slice: its ready endpoints.
pub(super) fn workers(object: Value, view: &KubeView) -> Decoded {
    let mut decoded = Decoded::default();
    let slice = match EndpointSlice::deserialize(object) {
        Ok(slice) => slice,
        Err(error) => {
            decoded.fault("an EndpointSlice", error.to_string());
            return decoded;
        }
    };
    let name = &*slice.metadata.name;
    let endpoints = slice.endpoints.iter().flatten();
    let ready: Vec<&Endpoint> = endpoints.filter(|endpoint| endpoint.is_ready()).collect();
    // A slice without endpoints has no ports either.
    if ready.is_empty() {
        return decoded;
    }
    let chosen = slice
        .attributes(view)
        .and_then(|attributes| Ok((attributes, slice.port(view)?)));
    match chosen {
        Ok((attributes, port)) => {
            for endpoint in ready {
                let entry = endpoint.entry();
                decoded.entry(entry, endpoint.worker(&attributes, port));
            }
        }
        Err(why) => decoded.fault(name, why),
    }
    decoded
}

impl EndpointSlice {
    fn attributes(&self, view: &KubeView) -> Result<Attributes, String> {
        self.metadata.attributes(&view.defaults)
    }

    fn port(&self, view: &KubeView) -> Result<u16, String> {
        let ports = self.ports.iter().flatten();
        let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        let numbered = tcp.filter_map(|port| Some((port.name.as_deref().unwrap_or_default(), port.port?)));
        view.choose_port(&numbered.collect::<Vec<_>>())
    }
}

impl Endpoint {
    /// Returns true unless the endpoint is unready or ending. An unknown condition counts as ready.
    fn is_ready(&self) -> bool {
        let conditions = self.conditions.as_ref();
        conditions
            .is_none_or(|conditions| conditions.ready != Some(false) && conditions.terminating != Some(true))
    }

    fn entry(&self) -> &str {
        self.addresses.first().map_or("an endpoint", |address| &**address)
    }

    fn worker(&self, attributes: &Attributes, port: u16) -> Result<DiscoveredWorker, String> {
        // All of them lead to the same server.
        let address = self.addresses.first().ok_or("it has no address")?;
        let mut attributes = attributes.clone();
        let target = self.target_ref.as_ref().filter(|target| target.kind == "Pod");
        let own = [
            ("pod", target.map(|target| &target.name)),
            ("zone", self.zone.as_ref()),
            ("node", self.node_name.as_ref()),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                attributes.label(name, value)?;
            }
        }
        attributes.worker(&host_port(address, port))
    }
}

#[cfg(test)]
mod tests {
    use routing::Role;
    use serde_json::json;

    use super::super::object::tests::view;
    use super::*;

    fn slice(endpoints: &Value, ports: &Value) -> Value {
        json!({
            "metadata": {
                "name": "vllm-x7",
                "labels": { "kubernetes.io/service-name": "vllm", "tier": "gold", "conductor/role": "decode" },
                "annotations": { "conductor/weight": "2", "other/x": "y" },
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        })
    }

    #[test]
    fn ready_endpoints_are_workers_with_the_labels_of_the_service_and_their_own() {
        let endpoints = json!([
            { "addresses": ["10.0.0.1"], "conditions": { "ready": true, "serving": true, "terminating": false },
              "targetRef": { "kind": "Pod", "name": "vllm-0" }, "zone": "b", "nodeName": "gpu-7" },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": true, "terminating": true } },
            { "addresses": ["fd00::4"], "conditions": {} },
        ]);
        let decoded = workers(
            slice(&endpoints, &json!([{ "name": "http", "port": 8000 }])),
            &view(true, None),
        );
        assert_eq!(decoded.fault_count, 0);
        let urls: Vec<_> = decoded.workers.iter().map(|worker| &*worker.url).collect();
        assert_eq!(urls, ["http://10.0.0.1:8000", "http://[fd00::4]:8000"]);
        let worker = &decoded.workers[0];
        assert_eq!((worker.role, worker.weight), (Role::Decode, 2.0));
        let labels: Vec<_> = worker
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(labels, ["node=gpu-7", "pod=vllm-0", "tier=gold", "zone=b"]);
    }

    #[test]
    fn a_slice_without_endpoints_has_no_workers_and_no_faults() {
        let none = workers(slice(&json!(null), &json!(null)), &view(true, None));
        assert_eq!(none, Decoded::default());
    }

    #[test]
    fn a_fault_names_the_slice_or_the_endpoint() {
        let ready = json!([{ "addresses": ["10.0.0.1"] }, { "addresses": [] }, { "addresses": ["a b"] }]);
        let two = json!([{ "name": "a", "port": 1 }, { "name": "b", "port": 2 }]);
        let ambiguous = workers(slice(&ready, &two), &view(true, None));
        assert_eq!(
            (ambiguous.workers.len(), &*ambiguous.faults[0].entry),
            (0, "vllm-x7")
        );
        let chosen = workers(slice(&ready, &two), &view(true, Some("b")));
        assert_eq!(chosen.workers[0].url, "http://10.0.0.1:2");
        let entries: Vec<_> = chosen.faults.iter().map(|fault| &*fault.entry).collect();
        assert_eq!(entries, ["an endpoint", "a b"]);
        assert_eq!(
            workers(json!({ "endpoints": 7 }), &view(true, None)).fault_count,
            1
        );
    }

    #[test]
    fn only_tcp_ports_count() {
        let ready = json!([{ "addresses": ["10.0.0.1"] }]);
        let ports = json!([{ "name": "q", "port": 1, "protocol": "UDP" }, { "port": 2, "protocol": "TCP" }]);
        assert_eq!(
            workers(slice(&ready, &ports), &view(true, None)).workers[0].url,
            "http://10.0.0.1:2"
        );
    }
}
