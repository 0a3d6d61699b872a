//! The direction of dependencies, as `host/ARCHITECTURE.md` draws it: arrows only point down, adapters never name each
//! other, and heavy or I/O crates are named only where they belong.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use tidy::root;

/// Allowed dependencies of each crate of `host/` on the others, outside its tests.
const INTERNAL: &[(&str, &[&str])] = &[
    ("routing", &[]),
    ("kv-index", &["routing"]),
    ("kv-events", &["routing"]),
    ("placement", &["kv-index", "routing"]),
    ("inference-api", &["routing"]),
    ("block-hash", &[]),
    ("tokenize", &[]),
    ("conductor-config", &["inference-api", "routing"]),
    ("policy-component", &[]),
    ("policy-runtime", &["routing"]),
    ("kv-feed", &["kv-events", "routing"]),
    ("worker-client", &[]),
    ("dashboard", &[]),
    ("decision-log", &["routing"]),
    (
        "live-updates",
        &[
            "admin-views",
            "decision-log",
            "kv-feed",
            "kv-index",
            "proxy",
            "routing",
        ],
    ),
    (
        "admin-pages",
        &[
            "admin-views",
            "conductor-config",
            "conductor-tools",
            "dashboard",
            "decision-log",
            "indexer-api",
            "inference-api",
            "kv-feed",
            "kv-plane",
            "live-updates",
            "local-files",
            "observability",
            "policy-runtime",
            "policy-store",
            "proxy",
            "replica-plane",
            "routing",
            "runtime-overrides",
            "worker-discovery",
            "worker-sources",
        ],
    ),
    (
        "admin-views",
        &["conductor-config", "decision-log", "proxy", "routing"],
    ),
    ("experiment", &["routing"]),
    ("replicas", &["kv-index", "routing"]),
    ("agreement", &[]),
    ("nats-bus", &["agreement", "replicas"]),
    (
        "replica-plane",
        &["agreement", "experiment", "replicas", "routing"],
    ),
    ("request-traces", &["routing"]),
    (
        "trace-export",
        &["observability", "request-traces", "worker-client"],
    ),
    (
        "proxy",
        &[
            "decision-log",
            "experiment",
            "inference-api",
            "kv-index",
            "observability",
            "placement",
            "request-traces",
            "routing",
            "tokenize",
            "worker-client",
        ],
    ),
    ("indexer-api", &["block-hash", "kv-index", "routing"]),
    ("observability", &[]),
    ("process-resources", &[]),
    (
        "live-check",
        &[
            "conductor-config",
            "inference-api",
            "kv-feed",
            "kv-plane",
            "observability",
            "routing",
            "tokenize",
            "worker-client",
        ],
    ),
    ("local-files", &["conductor-config"]),
    ("logging", &["conductor-config", "observability"]),
    (
        "policy-store",
        &[
            "conductor-config",
            "local-files",
            "observability",
            "policy-runtime",
            "process-resources",
            "routing",
        ],
    ),
    (
        "runtime-overrides",
        &["conductor-config", "policy-store", "routing"],
    ),
    (
        "kv-plane",
        &[
            "conductor-config",
            "indexer-api",
            "inference-api",
            "kv-feed",
            "kv-index",
            "observability",
            "replicas",
            "routing",
            "worker-client",
        ],
    ),
    (
        "external-resources",
        &[
            "conductor-config",
            "indexer-api",
            "kv-feed",
            "local-files",
            "observability",
            "proxy",
            "tokenize",
        ],
    ),
    ("worker-discovery", &["conductor-config", "routing"]),
    (
        "worker-sources",
        &[
            "local-files",
            "observability",
            "worker-client",
            "worker-discovery",
        ],
    ),
    ("mock-engine", &[]),
    ("mooncake-compat", &["conductor-config", "routing"]),
    ("router-import", &["mooncake-compat", "routing"]),
    ("simulator", &["kv-index", "placement", "replicas", "routing"]),
    (
        "conductor-tools",
        &[
            "block-hash",
            "conductor-config",
            "decision-log",
            "local-files",
            "observability",
            "operator-tools",
            "placement",
            "policy-component",
            "policy-runtime",
            "policy-store",
            "process-resources",
            "routing",
            "simulator",
        ],
    ),
    (
        "operator-tools",
        &[
            "conductor-config",
            "local-files",
            "observability",
            "worker-client",
        ],
    ),
    (
        "conductor",
        &[
            "admin-pages",
            "admin-views",
            "agreement",
            "conductor-config",
            "conductor-tools",
            "decision-log",
            "external-resources",
            "indexer-api",
            "kv-feed",
            "kv-index",
            "kv-plane",
            "live-check",
            "live-updates",
            "local-files",
            "logging",
            "mock-engine",
            "mooncake-compat",
            "nats-bus",
            "observability",
            "operator-tools",
            "policy-runtime",
            "policy-store",
            "process-resources",
            "proxy",
            "replica-plane",
            "replicas",
            "request-traces",
            "router-import",
            "routing",
            "runtime-overrides",
            "trace-export",
            "worker-discovery",
            "worker-sources",
        ],
    ),
];

/// Crates that only these may name.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("wasmtime", &["policy-runtime"]),
    ("zmq", &["load", "mock-engine"]),
    ("async-nats", &["nats-bus"]),
    ("nkeys", &["nats-bus"]),
    ("crypto_box", &["kv-feed"]),
    ("toml", &["conductor-config", "policy-builder"]),
    ("notify", &["local-files"]),
    (
        "clap",
        &[
            "conductor",
            "conductor-tools",
            "mooncake-compat",
            "operator-tools",
            "policy-builder",
            "load",
        ],
    ),
    (
        "axum",
        &[
            "admin-pages",
            "dashboard",
            "indexer-api",
            "instructions",
            "mock-engine",
            "proxy",
        ],
    ),
    (
        "hyper",
        &["harness", "load", "mock-engine", "proxy", "worker-client"],
    ),
    ("hickory-resolver", &["source-servers", "worker-sources"]),
    ("tokenizers", &["tokenize"]),
    ("minijinja", &["tokenize"]),
    ("wit-bindgen", &["conductor-policy-sdk"]),
    ("wit-component", &["policy-component"]),
    ("wasmparser", &["policy-component", "policy-runtime"]),
    (
        "anyhow",
        &[
            "conductor",
            "conductor-tools",
            "harness",
            "load",
            "operator-tools",
            "policy-builder",
        ],
    ),
    ("comfy-table", &["operator-tools"]),
    ("crossterm", &["operator-tools"]),
];

/// Crates without any I/O: no runtime, no sockets.
const PURE: &[&str] = &[
    "agreement",
    "routing",
    "kv-index",
    "placement",
    "kv-events",
    "inference-api",
    "block-hash",
    "experiment",
    "replicas",
    "request-traces",
    "tokenize",
    "conductor-config",
    "mooncake-compat",
    "policy-component",
    "router-import",
    "simulator",
    "worker-discovery",
];
const IMPURE: &[&str] = &[
    "tokio", "hyper", "axum", "zmq", "wasmtime", "notify", "socket2", "rustix",
];

fn packages() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes the workspace");
    metadata
        .packages
        .into_iter()
        .map(|package| (package.name.to_string(), package))
        .collect()
}

fn uses(package: &Package) -> BTreeSet<String> {
    let outside_tests = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development);
    outside_tests.map(|dependency| dependency.name.clone()).collect()
}

#[test]
fn the_crates_of_the_host_depend_on_each_other_only_as_drawn() {
    let packages = packages();
    let table: BTreeMap<_, _> = INTERNAL.iter().copied().collect();
    for (name, package) in &packages {
        if !package.manifest_path.as_str().contains("/host/") {
            continue;
        }
        let allowed = table
            .get(name.as_str())
            .unwrap_or_else(|| panic!("`{name}` is not in the table of this test"));
        let internal: Vec<_> = uses(package)
            .into_iter()
            .filter(|used| packages.contains_key(used))
            .collect();
        for used in internal {
            assert!(
                allowed.contains(&used.as_str()),
                "`{name}` must not depend on `{used}`"
            );
        }
    }
    for (name, _) in INTERNAL {
        assert!(
            packages.contains_key(*name),
            "`{name}` is in the table but not in the workspace"
        );
    }
}

#[test]
fn heavy_crates_are_named_only_where_they_belong() {
    for (name, package) in packages() {
        for used in uses(&package) {
            let Some((_, allowed)) = ONLY_IN.iter().find(|(restricted, _)| *restricted == used) else {
                continue;
            };
            assert!(
                allowed.contains(&name.as_str()),
                "`{name}` must not name `{used}`: only {allowed:?} may"
            );
        }
    }
}

#[test]
fn pure_crates_know_no_io() {
    let packages = packages();
    for name in PURE {
        let used = uses(&packages[*name]);
        let impure: Vec<_> = IMPURE.iter().filter(|impure| used.contains(**impure)).collect();
        assert!(impure.is_empty(), "`{name}` is pure but depends on {impure:?}");
    }
}

#[test]
fn every_crate_takes_its_lints_and_versions_from_the_workspace() {
    for (name, package) in packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(manifest.contains("[lints"), "`{name}` has no [lints]");
        assert!(
            manifest.contains("edition.workspace = true"),
            "`{name}` names an edition of its own"
        );
        let own_version = manifest.lines().find(|line| line.contains("version = \""));
        assert_eq!(
            own_version, None,
            "`{name}` names a version of its own; versions live in the root manifest"
        );
    }
}
