//! `policy build`: what compilers leave becomes a component.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::binary::{policy, policy_in};
use crate::components::{Files, LEAST, component, deciding, module};

#[test]
fn a_core_module_becomes_a_component_beside_it_that_passes_the_check() {
    let files = Files::new();
    let file = files.write("mine.wasm", module(LEAST));
    let run = policy(["build", file.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report = run.json();
    assert_eq!(report["check"]["ok"], true);
    assert!(
        report["from-core-module"]
            .as_str()
            .unwrap()
            .ends_with("mine.wasm")
    );
    let made = files.folder().join("mine.component.wasm");
    assert_eq!(report["component"], made.to_str().unwrap());
    assert_eq!(fs::read(made).unwrap(), component(LEAST));
}

#[test]
fn a_component_is_left_as_it_is() {
    let files = Files::new();
    let file = files.write("mine.wasm", component(LEAST));
    let run = policy(["build", file.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.json()["from-core-module"].is_null());
    assert_eq!(fs::read(&file).unwrap(), component(LEAST));
}

#[test]
fn the_system_interface_is_refused_with_the_cure() {
    let files = Files::new();
    let import = r#"(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))"#;
    let file = files.write("mine.wasm", module(&format!("{import} {LEAST}")));
    let run = policy(["build", file.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    for part in [
        "wasi_snapshot_preview1 random_get",
        "no WASI",
        "wasm32-unknown-unknown",
        "--stub-wasi",
    ] {
        assert!(run.stderr.contains(part), "no `{part}` in {run:?}");
    }
}

#[test]
fn the_report_of_a_foreign_module_names_what_it_lacks() {
    let files = Files::new();
    let file = files.write(
        "mine.wasm",
        wat::parse_str("(module (func (export \"run\")))").unwrap(),
    );
    let run = policy(["build", file.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("wit-bindgen"), "{run:?}");
}

#[test]
fn a_policy_that_fails_its_check_is_reported_and_not_written() {
    let files = Files::new();
    let file = files.write("mine.wasm", module(&deciding("unreachable")));
    let made = files.write("mine.component.wasm", component(LEAST));
    let run = policy(["build", file.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 1);
    let report = run.json();
    assert_eq!(
        (&report["check"]["ok"], &report["outcome"]),
        (&false.into(), &"refused".into())
    );
    assert_eq!(fs::read(made).unwrap(), component(LEAST), "the last good one");
    let left: Vec<_> = fs::read_dir(files.folder()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Returns a project whose script does this.
fn project(script: &str) -> Files {
    let files = Files::new();
    files.write("core.bin", module(LEAST));
    let script = files.write(
        "build.sh",
        format!("#!/bin/sh\nset -eu\ncd \"$(dirname \"$0\")\"\n{script}\n"),
    );
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    files
}

#[test]
fn a_project_is_built_by_its_own_script() {
    let files = project("echo compiling\ncp core.bin mine.wasm");
    let run = policy_in(files.folder(), ["build", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("compiling"), "{run:?}");
    assert_eq!(run.json()["check"]["ok"], true);
    assert_eq!(
        fs::read(files.folder().join("mine.wasm")).unwrap(),
        component(LEAST)
    );
}

#[test]
fn a_script_that_fails_or_leaves_nothing_is_reported() {
    let failing = policy_in(project("exit 7").folder(), ["build"]);
    assert_eq!(failing.code, 1);
    assert!(failing.stderr.contains("exit status: 7"), "{failing:?}");
    let idle = policy_in(project("true").folder(), ["build"]);
    assert!(idle.stderr.contains("leaves no .wasm file"), "{idle:?}");
    let empty = policy_in(Files::new().folder(), ["build"]);
    assert!(empty.stderr.contains("conductor policy new"), "{empty:?}");
}

#[test]
fn a_script_that_writes_to_the_given_place_replaces_the_component_only_when_it_is_good() {
    let files = project("cp core.bin \"${CONDUCTOR_OUT:-.}/mine.wasm\"");
    let mine = files.write("mine.wasm", component(LEAST));
    files.write("core.bin", component(&deciding("unreachable")));
    let run = policy_in(files.folder(), ["build"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("not written"), "{run:?}");
    assert_eq!(fs::read(&mine).unwrap(), component(LEAST));
    files.write("core.bin", module(LEAST));
    fs::remove_file(&mine).unwrap();
    let run = policy_in(files.folder(), ["build", "--json"]);
    assert_eq!((run.code, &run.json()["outcome"]), (0, &"new".into()), "{run:?}");
    assert_eq!(fs::read(&mine).unwrap(), component(LEAST));
}

#[test]
fn a_component_overwritten_by_a_failed_build_is_restored() {
    let files = project("cp core.bin mine.wasm");
    let mine = files.write("mine.wasm", component(LEAST));
    let bad = component(&deciding("unreachable"));
    files.write("core.bin", &bad);
    let run = policy_in(files.folder(), ["build"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(fs::read(&mine).unwrap(), component(LEAST));
    assert_eq!(fs::read(files.folder().join("mine.wasm.refused")).unwrap(), bad);

    let failing = project("echo half > mine.wasm\nexit 3");
    let mine = failing.write("mine.wasm", component(LEAST));
    let run = policy_in(failing.folder(), ["build"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(fs::read(&mine).unwrap(), component(LEAST));
}

#[test]
fn a_script_may_install_only_on_request() {
    let files = project("echo \"install: ${CONDUCTOR_INSTALL:-no}\"\ncp core.bin mine.wasm");
    let plain = policy_in(files.folder(), ["build"]);
    assert!(plain.stderr.contains("install: no"), "{plain:?}");
    let installed = policy_in(files.folder(), ["build", "--install"]);
    assert!(installed.stderr.contains("install: 1"), "{installed:?}");
}

#[test]
fn long_steps_are_lines_where_standard_error_is_no_terminal() {
    let files = project("cp core.bin mine.wasm");
    let run = policy_in(files.folder(), ["build"]);
    for line in ["running build.sh", "compiling", "scenarios", "requests in a row"] {
        assert!(run.stderr.contains(line), "no `{line}` in {run:?}");
    }
}
