//! `policy inspect`, `list`, `features` and `bench`: what there is to see.

use serde_json::{Value, json};

use crate::binary::{findings, policy};
use crate::components::{Files, LEAST, LISTENER, component, deciding, module};

#[test]
fn a_component_shows_its_interfaces_its_makers_and_its_plan() {
    let run = policy(["inspect", "pd-pairing", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report = run.json();
    assert_eq!(
        (&report["layer"], &report["places-pairs"]),
        (&Value::from("component"), &Value::from(true))
    );
    assert_eq!(report["needs-tokens"], true);
    let exports = report["exports"].as_array().unwrap();
    let schedule = exports
        .iter()
        .find(|export| export["name"] == "conductor:policy/schedule@0.1.0");
    assert_eq!(schedule.unwrap()["functions"][0], "schedule");
    assert!(
        report["made-by"].to_string().contains("wit-component"),
        "{report}"
    );
    let columns = report["candidate-features"].to_string();
    assert!(columns.contains("worker.role"), "{columns}");
    let text = policy(["inspect", "pd-pairing"]).stdout;
    assert!(text.contains("pairs      yes"), "{text}");
}

#[test]
fn a_core_module_is_distinguished_from_a_component() {
    let files = Files::new();
    let file = files.write("mine.wasm", module(LEAST));
    let run = policy(["inspect", file.to_str().unwrap(), "--json"]);
    assert_eq!((run.code, findings(&run)), (1, vec!["core-module".to_owned()]));
    let report = run.json();
    assert_eq!(
        (&report["layer"], &report["has-component-type"]),
        (&Value::from("core module"), &Value::from(false))
    );
    assert!(report["exports"].to_string().contains("#schedule"));
}

#[test]
fn the_builtins_are_listed_and_so_is_a_folder_with_what_is_wrong_in_it() {
    let builtins = policy(["list", "--json"]);
    assert_eq!(builtins.code, 0);
    let names: Vec<String> = builtins
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|builtin| builtin["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, conductor::builtin::names());
    let list = builtins.json();
    let default = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|listed| listed["default"] == true);
    let default: Vec<_> = default.map(|listed| listed["name"].as_str().unwrap()).collect();
    assert_eq!(default, [conductor::builtin::DEFAULT]);
    let text = policy(["list"]).stdout;
    let marked: Vec<&str> = text.lines().filter(|line| line.contains("default")).collect();
    let mark = format!("{} (the default)", conductor::builtin::DEFAULT);
    assert!(marked.len() == 1 && marked[0].contains(&mark), "{text}");
    let files = Files::new();
    files.write("good.wasm", component(LEAST));
    files.write("odd.wasm", "text");
    let folder = policy(["list", "--dir", files.folder().to_str().unwrap(), "--json"]);
    assert_eq!(folder.code, 1);
    let listed = folder.json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["version"]),
        (&Value::from("good"), &Value::from("1.2.3"))
    );
    assert!(
        listed[1]["problem"]
            .as_str()
            .unwrap()
            .contains("do not begin like WebAssembly")
    );
    assert_eq!(policy(["list", "--dir", "no-such-folder"]).code, 2);
}

#[test]
fn every_feature_of_the_reference_page_is_listed_with_what_it_costs() {
    let report = policy(["features", "--json"]).json();
    let reference = include_str!("../../../../wit/README.md");
    let all = report["request"]
        .as_array()
        .unwrap()
        .iter()
        .chain(report["candidate"].as_array().unwrap());
    let mut listed = 0;
    for feature in all {
        let name = feature["name"].as_str().unwrap();
        assert!(reference.contains(&format!("\n- **`{name}`** (")), "{name}");
        assert!(!feature["cost"].as_str().unwrap().is_empty());
        listed += 1;
    }
    let described = reference.lines().filter(|line| line.starts_with("- **`"));
    assert_eq!(listed, described.count());
    let prefix = &report["candidate"]
        .as_array()
        .unwrap()
        .iter()
        .find(|feature| feature["name"] == "prefix.any-tokens");
    assert!(prefix.unwrap()["cost"].as_str().unwrap().contains("index"));
}

#[test]
fn a_bench_times_four_policies_at_four_sizes() {
    let files = Files::new();
    let file = files.write("mine.wasm", component(LEAST));
    let run = policy(["bench", file.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report = run.json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let timings = row["timings"].as_array().unwrap();
        let names: Vec<_> = timings
            .iter()
            .map(|timing| timing["policy"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "mine",
                "builtin round-robin",
                "builtin cache-aware",
                "native least-loaded"
            ]
        );
        assert!(
            timings
                .iter()
                .all(|timing| timing["best-ns"].as_f64().unwrap() > 0.0),
            "{row}"
        );
        assert_eq!(timings[3]["times-native"], 1.0);
    }
    let faulty = files.write("faulty.wasm", component(&deciding("unreachable")));
    assert_eq!(policy(["bench", faulty.to_str().unwrap()]).code, 1);
}

#[test]
fn junk_is_called_so_in_a_line() {
    let files = Files::new();
    let junk = files.write("junk.wasm", "garbage");
    for tool in ["inspect", "build"] {
        let run = policy([tool, junk.to_str().unwrap()]);
        assert_eq!(run.code, 1, "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(run.stderr.contains("do not begin like it"), "{run:?}");
    }
}

#[test]
fn the_events_of_a_policy_are_shown() {
    let files = Files::new();
    let file = files.write("mine.wasm", component(LISTENER));
    let report = policy(["inspect", file.to_str().unwrap(), "--json"]).json();
    let kinds = ["request.dispatched", "moon.full?", "request.failed"];
    assert_eq!(
        (&report["events"], &report["ticks"]),
        (&json!(kinds), &json!(true))
    );
    let text = policy(["inspect", file.to_str().unwrap()]).stdout;
    assert!(
        text.contains("events     request.dispatched, moon.full?"),
        "{text}"
    );
    assert!(text.contains("tick       yes"), "{text}");
    let none = policy(["inspect", "round-robin", "--json"]).json();
    assert_eq!((&none["events"], &none["ticks"]), (&Value::Null, &json!(false)));
}
