//! Tests of the source hash and of the check of `policies/prebuilt`, on a synthetic workspace.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use policy_builder::{BuiltComponent, Manifest, StdRoute, Toolchain, check, policies, source_hash};
use tempfile::TempDir;

const WASM: &[u8] = b"\0asm component";

const FILES: [(&str, &str); 9] = [
    ("wit/policy.wit", "package a:b;\n"),
    ("wit/README.md", "words\n"),
    ("policy-sdk/src/lib.rs", "//! sdk\n"),
    (
        "policy-sdk/Cargo.toml",
        "[dependencies]\nsmall.workspace = true\n[dev-dependencies]\nlarge = \"1\"\n",
    ),
    ("policies/turn/src/lib.rs", "//! turn\n"),
    ("policies/turn/README.md", "words\n"),
    (
        "policies/turn/Cargo.toml",
        "[lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n[dependencies]\nconductor-policy-sdk.workspace = true\n",
    ),
    (
        "Cargo.toml",
        "[workspace.package]\nversion = \"1\"\n[workspace.dependencies]\nsmall = \"1\"\nlarge = \"1\"\n\
         [profile.policy]\nopt-level = \"s\"\n[profile.dev]\ndebug = 1\n",
    ),
    (
        "Cargo.lock",
        "[[package]]\nname = \"conductor-policy-sdk\"\nversion = \"1\"\ndependencies = [\"large\", \"small\"]\n\
         [[package]]\nname = \"large\"\nversion = \"1.0.0\"\n\
         [[package]]\nname = \"policy-component\"\nversion = \"1\"\ndependencies = [\"wit-component\"]\n\
         [[package]]\nname = \"small\"\nversion = \"1.0.0\"\ndependencies = [\"tiny\"]\n\
         [[package]]\nname = \"tiny\"\nversion = \"1.0.0\"\n\
         [[package]]\nname = \"wit-component\"\nversion = \"0.1.0\"\n",
    ),
];

fn workspace() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        write(root.path(), path, text);
    }
    fs::create_dir_all(root.path().join("policies/prebuilt")).unwrap();
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Records the policy as built from the current sources.
fn record(root: &Path) {
    let source = source_hash(root, "turn").unwrap();
    let manifest = Manifest {
        toolchain: Toolchain {
            route: StdRoute::Rustup,
            rustc: "rustc 1".to_owned(),
            linker: None,
        },
        policies: BTreeMap::from([("turn".to_owned(), BuiltComponent::new(source, WASM))]),
    };
    manifest.write(root).unwrap();
    assert_eq!(Manifest::read(root).unwrap(), Some(manifest));
    fs::write(root.join("policies/prebuilt/turn.wasm"), WASM).unwrap();
}

/// Asserts that replacing `from` by `to` in a file changes the hash.
#[track_caller]
fn hash_changes(path: &str, from: &str, to: &str) -> bool {
    let root = workspace();
    let before = source_hash(root.path(), "turn").unwrap();
    let file = root.path().join(path);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "`{path}` has no `{from}`");
    fs::write(file, text.replace(from, to)).unwrap();
    before != source_hash(root.path(), "turn").unwrap()
}

#[test]
fn a_hash_depends_on_the_components_inputs() {
    for (path, from, to) in [
        ("wit/policy.wit", "a:b", "a:c"),
        ("policy-sdk/src/lib.rs", "sdk", "SDK"),
        ("policies/turn/src/lib.rs", "turn", "Turn"),
        ("policies/turn/Cargo.toml", "\"rlib\"", "\"lib\""),
        ("Cargo.toml", "opt-level = \"s\"", "opt-level = 3"),
        ("Cargo.toml", "version = \"1\"", "version = \"2\""),
        ("Cargo.toml", "small = \"1\"", "small = \"2\""),
        (
            "Cargo.lock",
            "name = \"tiny\"\nversion = \"1.0.0\"",
            "name = \"tiny\"\nversion = \"1.0.1\"",
        ),
        ("Cargo.lock", "0.1.0", "0.2.0"),
    ] {
        assert!(hash_changes(path, from, to), "{path}: {from}");
    }
}

#[test]
fn a_hash_does_not_depend_on_anything_else() {
    for (path, from, to) in [
        ("wit/README.md", "words", "other words"),
        ("policies/turn/README.md", "words", "other words"),
        ("policies/turn/src/lib.rs", "\n", "\r\n"),
        ("Cargo.toml", "large = \"1\"", "large = \"2\""),
        ("Cargo.toml", "debug = 1", "debug = 0"),
        (
            "Cargo.lock",
            "name = \"large\"\nversion = \"1.0.0\"",
            "name = \"large\"\nversion = \"1.0.1\"",
        ),
    ] {
        assert!(!hash_changes(path, from, to), "{path}: {from}");
    }
}

#[test]
fn a_file_that_moves_changes_the_hash() {
    let root = workspace();
    let before = source_hash(root.path(), "turn").unwrap();
    write(root.path(), "policies/turn/src/more.rs", "");
    assert_ne!(before, source_hash(root.path(), "turn").unwrap());
}

#[test]
fn an_unchanged_record_has_no_problems() {
    let root = workspace();
    record(root.path());
    assert_eq!(policies(root.path()).unwrap(), ["turn"]);
    assert_eq!(check(root.path()).unwrap(), Vec::<String>::new());
}

/// Asserts that `change` causes one problem, which names `expected`.
#[track_caller]
fn problem(expected: &str, change: impl FnOnce(&Path)) {
    let root = workspace();
    record(root.path());
    change(root.path());
    let problems = check(root.path()).unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expected), "{problems:?}");
}

#[test]
fn every_disagreement_is_a_problem_with_its_remedy() {
    problem("manifest.toml is missing; run `cargo prebuild`", |root| {
        fs::remove_file(root.join("policies/prebuilt/manifest.toml")).unwrap();
    });
    problem("sources of policy `turn` have changed", |root| {
        write(root, "policies/turn/src/lib.rs", "//! changed\n");
    });
    problem("turn.wasm does not match the manifest", |root| {
        fs::write(root.join("policies/prebuilt/turn.wasm"), b"\0asm componenT").unwrap();
    });
    problem("turn.wasm is missing", |root| {
        fs::remove_file(root.join("policies/prebuilt/turn.wasm")).unwrap();
    });
    problem("old.wasm belongs to no policy; delete it", |root| {
        fs::write(root.join("policies/prebuilt/old.wasm"), WASM).unwrap();
    });
    problem("policy `new` is not built yet", |root| {
        write(
            root,
            "policies/new/Cargo.toml",
            "[lib]\ncrate-type = [\"cdylib\"]\n",
        );
        write(root, "policies/new/src/lib.rs", "");
    });
}
