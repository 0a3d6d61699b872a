//! The policy contract: its text and its version belong together, its documentation names every feature, and the
//! built policies belong to their sources.

use std::fs;

use sha2::{Digest, Sha256};
use tidy::root;

/// Returns the version in `package conductor:policy@X;` of the contract.
fn declared_version(wit: &str) -> &str {
    let line = wit
        .lines()
        .find(|line| line.starts_with("package "))
        .expect("the contract names its package");
    line.rsplit('@')
        .next()
        .expect("rsplit yields at least one part")
        .trim_end_matches(';')
}

#[test]
fn the_contract_changes_only_together_with_its_recorded_hash() {
    let wit = fs::read_to_string(root().join("wit/policy.wit")).unwrap();
    let versions: toml::Table = fs::read_to_string(root().join("wit/versions.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let version = declared_version(&wit);
    let recorded = versions
        .get(version)
        .and_then(toml::Value::as_str)
        .unwrap_or_else(|| {
            panic!("wit/versions.toml does not know version {version}");
        });
    let digest = Sha256::digest(wit.as_bytes());
    let actual: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        actual, recorded,
        "wit/policy.wit changed under version {version}. If a built policy could notice, raise the version (wit/README.md says \
         when); if only comments changed, record the new hash in wit/versions.toml"
    );
}

#[test]
fn the_contracts_readme_documents_every_feature() {
    let readme = fs::read_to_string(root().join("wit/README.md")).unwrap();
    let request = routing::REQUEST_CATALOGUE.iter().map(|(_, doc)| doc);
    let candidate = routing::CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc);
    for doc in request.chain(candidate) {
        for part in [doc.name, doc.unit, doc.freshness, doc.unknown, doc.meaning] {
            assert!(
                readme.contains(part),
                "wit/README.md does not say of `{}`: {part}",
                doc.name
            );
        }
    }
}

#[test]
fn the_router_shows_the_headers_that_shipped_policies_read() {
    let config = fs::read_to_string(root().join("config/conductor.toml")).unwrap();
    let config: toml::Table = config.parse().unwrap();
    let shown = config["server"]["policy-headers"].as_array().unwrap();
    let mut read = 0;
    for file in tidy::files(&["rs"]) {
        if !file.path.starts_with("policies/") {
            continue;
        }
        let constants = file.text.lines().filter(|line| line.contains("_HEADER: &str = "));
        for header in constants.filter_map(|line| line.split('"').nth(1)) {
            assert!(
                shown.iter().any(|shown| shown.as_str() == Some(header)),
                "{}: the default of `policy-headers` does not have `{header}`",
                file.path
            );
            read += 1;
        }
    }
    assert!(read >= 2, "no header is found");
}

#[test]
fn the_prebuilt_policies_belong_to_their_sources() {
    let problems = policy_builder::check(&root()).unwrap();
    assert!(
        problems.is_empty(),
        "run `cargo prebuild`:\n{}",
        problems.join("\n")
    );
}
