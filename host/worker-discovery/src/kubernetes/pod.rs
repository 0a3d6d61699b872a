//! Pod: one worker, while it is ready.

use serde::Deserialize;
use serde_json::Value;

use super::object::{KubeView, ObjectMeta, host_port};
use crate::decoded::Decoded;
use crate::worker::DiscoveredWorker;

/// Pod, its fields that make a worker.
#[derive(Debug, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    containers: Vec<Container>,
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: String,
    container_port: u16,
    #[serde(default)]
    protocol: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    r#type: String,
    status: String,
}

/// Returns the worker of a ready pod.
pub(super) fn workers(object: Value, view: &KubeView) -> Decoded {
    let mut decoded = Decoded::default();
    match Pod::deserialize(object) {
        Ok(pod) => {
            if let Some(address) = pod.ready_address() {
                decoded.entry(&pod.metadata.name, pod.worker(address, view));
            }
        }
        Err(error) => decoded.fault("a pod", error.to_string()),
    }
    decoded
}

impl Pod {
    /// Returns the address of a pod that is ready and does not end.
    fn ready_address(&self) -> Option<&str> {
        let mut conditions = self.status.conditions.iter().flatten();
        let is_ready = conditions.any(|condition| condition.r#type == "Ready" && condition.status == "True");
        let address = self
            .status
            .pod_ip
            .as_deref()
            .filter(|address| !address.is_empty());
        address.filter(|_| is_ready && self.metadata.deletion_timestamp.is_none())
    }

    fn worker(&self, address: &str, view: &KubeView) -> Result<DiscoveredWorker, String> {
        let mut attributes = self.metadata.attributes(&view.defaults)?;
        attributes.label("pod", &self.metadata.name)?;
        if let Some(node) = &self.spec.node_name {
            attributes.label("node", node)?;
        }
        let ports = self
            .spec
            .containers
            .iter()
            .flat_map(|container| container.ports.iter().flatten());
        let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        let ports: Vec<(&str, u16)> = tcp.map(|port| (&*port.name, port.container_port)).collect();
        attributes.worker(&host_port(address, view.choose_port(&ports)?))
    }
}

#[cfg(test)]
mod tests {
    use routing::Role;
    use serde_json::json;

    use super::super::object::tests::view;
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "vllm-0", "labels": { "app": "vllm", "pod-template-hash": "x" },
                "annotations": { "conductor/role": "prefill" },
            },
            "spec": { "nodeName": "gpu-7", "containers": [
                { "name": "sidecar" },
                { "name": "vllm", "ports": [{ "containerPort": 8000, "name": "http", "protocol": "TCP" }] },
            ] },
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{ "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "True" }],
            },
        })
    }

    #[test]
    fn a_ready_pod_is_a_worker() {
        let decoded = workers(pod(), &view(false, None));
        assert_eq!((decoded.workers.len(), decoded.fault_count), (1, 0));
        let worker = &decoded.workers[0];
        assert_eq!(
            (&*worker.url, worker.role),
            ("http://10.0.0.1:8000", Role::Prefill)
        );
        let labels: Vec<_> = worker
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(labels, ["app=vllm", "node=gpu-7", "pod=vllm-0"]);
    }

    #[test]
    fn a_pod_that_is_not_ready_or_ends_is_none() {
        let check = |pointer: &str, value: Value| {
            let mut changed = pod();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(
                workers(changed, &view(false, None)),
                Decoded::default(),
                "{pointer}"
            );
        };
        check("/status/conditions/1/status", json!("False"));
        check("/status/conditions", json!(null));
        check("/status/podIP", json!(null));
        let mut ends = pod();
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(workers(ends, &view(false, None)), Decoded::default());
    }

    #[test]
    fn a_pod_with_a_bad_property_or_an_unknown_port_is_a_fault() {
        let mut bad = pod();
        bad["metadata"]["annotations"]["conductor/role"] = json!("x");
        assert_eq!(workers(bad, &view(false, None)).faults[0].entry, "vllm-0");
        assert_eq!(workers(pod(), &view(false, Some("grpc"))).fault_count, 1);
        assert_eq!(workers(json!(7), &view(false, None)).fault_count, 1);
    }
}
