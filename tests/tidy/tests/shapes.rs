//! The shapes of types: few fields, few methods, and one definition of each name in a crate.

use std::collections::{BTreeMap, BTreeSet};

use tidy::types::{TypeKind, TypeShape, by_crate};

const MAX_FIELDS: usize = 10;
const MAX_METHODS: usize = 6;

/// Structs and traits that may be larger, with the reason.
const LARGER: &[(&str, &str)] = &[
    (
        "block-hash::Serializer",
        "one method for each type of the encoded value",
    ),
    (
        "conductor-config::AdmissionConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::ClientConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::Config",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::HealthConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::PolicyConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::PoolConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::ServerConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor-config::WorkerConfig",
        "a table of the configuration file: one field for each key",
    ),
    (
        "conductor::Reloader",
        "state of the reload thread: one field for each part, which are groups themselves",
    ),
    (
        "conductor-tools::CallPage",
        "a page of the router: one field for each key of its JSON",
    ),
    (
        "conductor-tools::InspectReport",
        "a report on a component: one field for each key of its JSON",
    ),
    (
        "conductor-tools::ComparisonReport",
        "a report of replays: one field for each key of its JSON",
    ),
    (
        "conductor-tools::SimulationReport",
        "a report of simulations: one field for each key of its JSON",
    ),
    (
        "conductor-tools::SettingReport",
        "a report of simulations: one field for each key of its JSON",
    ),
    (
        "conductor-tools::SimulateArgs",
        "arguments of a command: one field for each flag",
    ),
    (
        "conductor-tools::SimulatedClusterArgs",
        "arguments of a command: one field for each flag",
    ),
    (
        "admin-pages::ConfigReport",
        "a page of the router: one field for each key of its JSON",
    ),
    ("conductor::Live", "one field for each part that a commit changes"),
    (
        "decision-log::CallNote",
        "the inputs and the result of one policy call, recorded as a whole",
    ),
    (
        "decision-log::DecisionLine",
        "a line of the decision log: one field for each key",
    ),
    (
        "decision-log::OutcomeLine",
        "a line of the decision log: one field for each key",
    ),
    (
        "decision-log::PolicyLine",
        "a line of the decision log: one field for each key",
    ),
    (
        "decision-log::ShadowLine",
        "a line of the decision log: one field for each key",
    ),
    (
        "indexer-api::ServiceView",
        "a page of the indexer: one field for each key of its JSON",
    ),
    (
        "kv-events::EventFields",
        "an event on the wire: one field for each member",
    ),
    (
        "kv-events::ObjectFields",
        "an object event on the wire: one field for each member",
    ),
    (
        "kv-feed::FeedCounters",
        "counters of one component: one field for each metric",
    ),
    (
        "kv-feed::FeedRecovery",
        "the state machine of a feed: its variables belong together",
    ),
    ("kv-feed::FeedSink", "the events of a feed: one method for each"),
    (
        "kv-feed::FeedStatus",
        "the status of a feed: one field for each reported number",
    ),
    (
        "kv-feed::PublisherModel",
        "the model of a publisher in the recovery test: its variables belong together",
    ),
    (
        "kv-feed::StoreStatus",
        "the status of a store: one field for each reported number",
    ),
    (
        "kv-index::Applied",
        "counts of one batch of events: one field for each kind",
    ),
    (
        "kv-index::IndexCore",
        "the tables of the index, which one lock protects together",
    ),
    ("mock-engine::Context", "what all endpoints of an engine share"),
    (
        "mock-engine::InferenceRequest",
        "a request on the wire: one field for each member",
    ),
    (
        "mock-engine::MockConfig",
        "settings of an engine: one field for each",
    ),
    (
        "mock-engine::MockStats",
        "counters of one component: one field for each metric",
    ),
    (
        "mock-engine::Scheduler",
        "the state of an engine step, as in vLLM",
    ),
    (
        "mock-engine::Sequence",
        "the state of one running request, as in vLLM",
    ),
    (
        "mock-engine::TransferEndpoint",
        "one side of a transfer: its variables belong together",
    ),
    (
        "mooncake-compat::MooncakeProxyArgs",
        "arguments of a command: one field for each flag",
    ),
    (
        "policy-store::PolicyReport",
        "a page of the router: one field for each key of its JSON",
    ),
    (
        "proxy::AdmissionController",
        "one queue with its limits, which one lock protects together",
    ),
    (
        "proxy::HealthSpec",
        "a table of the configuration file, resolved: one field for each key",
    ),
    (
        "proxy::PoolSpec",
        "a pool of the configuration file, resolved: one field for each part",
    ),
    (
        "proxy::Principal",
        "a client with its limits and rights: one field for each",
    ),
    (
        "proxy::ShadowReport",
        "a page of the router: one field for each key of its JSON",
    ),
    (
        "proxy::SnapshotSpec",
        "the configuration of the request path, resolved: one field for each part",
    ),
    (
        "request-traces::Span",
        "a message of OTLP: one field for each member",
    ),
    (
        "routing::DecisionQueries",
        "host functions of the policy contract: one method for each",
    ),
    (
        "simulator::PaperProfile",
        "a cost profile: one field for each published number",
    ),
    (
        "simulator::RecordedRequest",
        "a recorded request: one field for each fact that a simulation needs",
    ),
    ("simulator::Run", "the state of one run of the simulation"),
    ("simulator::Sample", "the figures of one run, reported as a whole"),
    ("simulator::SimWorker", "the state of one simulated engine"),
    (
        "simulator::Summary",
        "a report of simulations: one field for each key of its JSON",
    ),
    (
        "simulator::TraceFacts",
        "a report of a trace: one field for each key of its JSON",
    ),
    ("inference-api::Peek", "the fields of a body that one pass reads"),
    (
        "request-traces::RequestTrace",
        "notes of a request: one field for each stage",
    ),
];

/// Type names that a crate defines more than once, with the reason.
const DEFINED_AGAIN: &[(&str, &str)] = &[];

/// Returns the types of every crate of `host/`.
fn host() -> BTreeMap<String, Vec<TypeShape>> {
    by_crate("host/")
}

/// Compares the names that were found, as `crate::Type`, with the exceptions.
#[track_caller]
fn check(rule: &str, found: &BTreeMap<String, String>, exceptions: &[(&str, &str)]) {
    let allowed: BTreeSet<_> = exceptions.iter().map(|(name, _)| *name).collect();
    let unlisted: Vec<_> = found
        .iter()
        .filter(|(name, _)| !allowed.contains(name.as_str()))
        .collect();
    let gone: Vec<_> = allowed
        .iter()
        .filter(|name| !found.contains_key(**name))
        .collect();
    assert!(unlisted.is_empty(), "{rule} {unlisted:#?}");
    assert!(
        gone.is_empty(),
        "these exceptions are no longer needed: {gone:#?}"
    );
    let unexplained: Vec<_> = exceptions
        .iter()
        .filter(|(_, reason)| reason.len() < 20)
        .collect();
    assert!(
        unexplained.is_empty(),
        "give these exceptions a reason: {unexplained:#?}"
    );
}

fn path(owner: &str, name: &str) -> String {
    format!("{}::{name}", owner.trim_start_matches("host/"))
}

#[test]
fn structs_have_at_most_10_fields_and_traits_at_most_6_methods() {
    let mut found = BTreeMap::new();
    for (owner, types) in host() {
        for shape in types {
            let most = match shape.kind {
                TypeKind::Struct => MAX_FIELDS,
                TypeKind::Trait => MAX_METHODS,
                TypeKind::Other => continue,
            };
            if shape.members > most {
                let place = format!("{} in {}", shape.members, shape.file);
                found.insert(path(&owner, &shape.name), place);
            }
        }
    }
    check(
        "group the members of these types by what they are about:",
        &found,
        LARGER,
    );
}

#[test]
fn a_type_name_is_defined_once_in_a_crate() {
    let mut found = BTreeMap::new();
    for (owner, types) in host() {
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for shape in &types {
            places.entry(&shape.name).or_default().push(&shape.file);
        }
        for (name, files) in places.into_iter().filter(|(_, files)| files.len() > 1) {
            found.insert(path(&owner, name), files.join(", "));
        }
    }
    check("give these types different names:", &found, DEFINED_AGAIN);
}
