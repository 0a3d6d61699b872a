//! The order of a crate's top-level modules: a module imports only modules to its right.

use std::collections::BTreeMap;

use tidy::SourceFile;
use tidy::modules::{ModuleGraph, OrderBreach};

/// Order of one crate's modules.
struct CrateOrder {
    /// Name of the crate, which is its folder in `host/`.
    name: &'static str,
    /// Levels from the outermost to the innermost. Modules of one level may import each other.
    levels: &'static [&'static [&'static str]],
    /// Imports against the order that are not removed yet: from, to, and their number. The numbers may only shrink.
    open: &'static [(&'static str, &'static str, usize)],
}

const ORDERS: &[CrateOrder] = &[
    CrateOrder {
        name: "proxy",
        levels: &[
            &["edge"],
            &["request", "proxy"],
            &["dispatch"],
            &["tokens"],
            &["limits"],
            &["observe"],
            &["fleet"],
            &["base", "tasks"],
        ],
        open: &[],
    },
    CrateOrder {
        name: "conductor",
        levels: &[
            &["demo", "import", "init"],
            &["serve"],
            &["app", "live_check"],
            &["check", "replicas"],
            &["replica_bus", "replica_usage", "shared_trials"],
            &["reload"],
            &["compose", "indexer"],
            &["config_hash", "live_fleet", "listeners", "metrics"],
            &["about"],
            &["cli", "service_manager", "signals", "start", "tasks"],
        ],
        open: &[],
    },
    CrateOrder {
        name: "admin-pages",
        levels: &[
            &["pages"],
            &["config_pages", "explore"],
            &[
                "discovery_page",
                "explain_page",
                "feeds_page",
                "index_page",
                "instances",
                "live_pages",
                "me_page",
                "policy_pages",
                "reload_page",
                "replica_page",
                "report_pages",
                "request_pages",
                "route_pages",
                "status_page",
                "trial_page",
            ],
            &["access", "control", "knowledge"],
            &["body"],
            &["refusal"],
        ],
        open: &[],
    },
];

/// Returns the problems of a crate's imports.
fn problems(order: &CrateOrder, graph: &ModuleGraph) -> Vec<String> {
    let name = order.name;
    let known = |module: &str| order.levels.iter().any(|level| level.contains(&module));
    let modules = graph.modules();
    let unknown = modules.iter().filter(|module| !known(module));
    let mut problems: Vec<_> = unknown
        .map(|module| format!("{name}: add `{module}` to the order of the modules"))
        .collect();
    let mut found: BTreeMap<_, Vec<OrderBreach>> = BTreeMap::new();
    for breach in graph.breaches(order.levels) {
        let edge = (breach.from_module(), breach.to_module());
        found.entry(edge).or_default().push(breach);
    }
    for (&(from, to), breaches) in &found {
        let mut open = order.open.iter();
        let most = open.find(|open| (open.0, open.1) == (from, to));
        let most = most.map_or(0, |open| open.2);
        if breaches.len() > most {
            let imports: Vec<_> = breaches.iter().map(ToString::to_string).collect();
            problems.push(format!(
                "{name}: `{from}` imports `{to}` {} times, at most {most}: {imports:#?}",
                breaches.len()
            ));
        }
    }
    for (from, to, most) in order.open {
        let count = found.get(&(*from, *to)).map_or(0, Vec::len);
        if count < *most {
            problems.push(format!(
                "{name}: `{from}` imports `{to}` {count} times, lower the open imports from {most}"
            ));
        }
    }
    problems
}

#[test]
fn a_module_imports_only_modules_to_its_right() {
    let problems: Vec<_> = ORDERS
        .iter()
        .flat_map(|order| {
            let graph = ModuleGraph::of_crate(&format!("host/{}", order.name));
            assert!(!graph.imports.is_empty(), "{} has no files", order.name);
            problems(order, &graph)
        })
        .collect();
    assert!(
        problems.is_empty(),
        "make these imports point one way: {problems:#?}"
    );
}

/// Checks the problems of a small crate whose modules are `outer`, `inner` and `base`.
#[track_caller]
fn check(files: &[(&str, &str)], open: &'static [(&'static str, &'static str, usize)], expected: &[&str]) {
    let order = CrateOrder {
        name: "sample",
        levels: &[&["outer"], &["inner", "beside"], &["base"]],
        open,
    };
    let files = files.iter().map(|(path, text)| SourceFile {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    });
    let graph = ModuleGraph::of_files(&files.collect::<Vec<_>>());
    assert_eq!(problems(&order, &graph), expected);
}

#[test]
fn an_import_against_the_order_is_found_with_its_file() {
    let lib = ("lib.rs", "mod outer; mod inner; mod beside; mod base;");
    let right = [
        lib,
        (
            "outer/mod.rs",
            "pub(crate) struct Outer(crate::inner::Inner, crate::base::Base);",
        ),
        ("inner.rs", "pub(crate) struct Inner(crate::beside::Beside);"),
        (
            "beside.rs",
            "pub(crate) struct Beside(Option<crate::inner::Inner>);",
        ),
        ("base.rs", "pub(crate) struct Base;"),
    ];
    check(&right, &[], &[]);
    let wrong = [
        lib,
        ("outer/mod.rs", "pub(crate) struct Outer;"),
        (
            "inner.rs",
            "use crate::outer::Outer; pub(crate) struct Inner(Outer);",
        ),
    ];
    check(
        &wrong,
        &[],
        &["sample: `inner` imports `outer` 1 times, at most 0: [\n    \"inner.rs imports outer/mod.rs\",\n]"],
    );
    check(&wrong, &[("inner", "outer", 1)], &[]);
    check(
        &wrong,
        &[("inner", "outer", 2)],
        &["sample: `inner` imports `outer` 1 times, lower the open imports from 2"],
    );
}

#[test]
fn a_module_without_a_place_in_the_order_is_found() {
    let files = [("lib.rs", "mod fresh;"), ("fresh.rs", "pub(crate) struct Fresh;")];
    check(&files, &[], &["sample: add `fresh` to the order of the modules"]);
}
