//! The components this repository ships load and decide.

use std::path::Path;

use crate::components::{engine, load};
use routing::PolicyDescription;

#[test]
fn every_prebuilt_policy_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/prebuilt");
    let engine = engine();
    let mut loaded = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "wasm") {
            continue;
        }
        let policy = load(&engine, &std::fs::read(&path).unwrap());
        let policy = policy.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!(
            "{}: {policy:?} {:?} {:?}",
            path.display(),
            policy.plan(),
            policy.report()
        );
        loaded += 1;
    }
    assert!(
        loaded > 0,
        "no component in policies/prebuilt: build them with `cargo prebuild`"
    );
}
