//! The Rust SDK as a project contains it: the sources of `policy-sdk`, with a manifest of their own.

/// Files of a folder by path.
type Files = &'static [(&'static str, &'static str)];

/// The sources, named one by one, so that the binary contains nothing else.
macro_rules! sources {
    ($($file:literal),+ $(,)?) => {
        &[$((
            concat!("sdk/src/", $file),
            include_str!(concat!("../../../../policy-sdk/src/", $file)),
        )),+]
    };
}

/// The files of the crate `conductor-policy-sdk` in a project, except of its manifest, which is part of the template.
///
/// The bindings read `../wit`, which is the project's own copy of the contract.
pub(super) static SDK: Files = sources!(
    "bindings.rs",
    "bounded_load_hash.rs",
    "call.rs",
    "event.rs",
    "forecast.rs",
    "guest.rs",
    "guest_scorer.rs",
    "hash.rs",
    "heavy_hitters.rs",
    "host.rs",
    "lanes.rs",
    "lib.rs",
    "load.rs",
    "number_text.rs",
    "pairing/mod.rs",
    "pairing/terms.rs",
    "params/json_object.rs",
    "params/mod.rs",
    "plan.rs",
    "policy.rs",
    "prefix.rs",
    "prefix_key.rs",
    "price.rs",
    "prompt_length.rs",
    "scorer.rs",
    "session_home.rs",
    "speed.rs",
    "testing/answers.rs",
    "testing/mod.rs",
    "testing/numbers.rs",
    "verdict.rs",
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use toml::{Table, Value};

    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    fn table(path: &str) -> Table {
        fs::read_to_string(root().join(path)).unwrap().parse().unwrap()
    }

    fn sources(folder: &Path, found: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                sources(&path, found);
            } else {
                let inside = path.strip_prefix(root().join("policy-sdk/src")).unwrap();
                found.insert(format!("sdk/src/{}", inside.display()));
            }
        }
    }

    #[test]
    fn every_source_of_the_sdk_is_in_the_binary() {
        let mut found = BTreeSet::new();
        sources(&root().join("policy-sdk/src"), &mut found);
        let embedded: BTreeSet<_> = SDK.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, found);
    }

    /// Returns the dependencies of a manifest, with those for WebAssembly, and each with the workspace's settings.
    fn dependencies(manifest: &str) -> Table {
        let manifest = table(manifest);
        let workspace = table("Cargo.toml");
        let shared = workspace["workspace"]["dependencies"].as_table().unwrap();
        let own = manifest["dependencies"].as_table().unwrap();
        let (_, guest) = manifest["target"].as_table().unwrap().iter().next().unwrap();
        let guest = guest["dependencies"].as_table().unwrap();
        let settings = |(name, value): (&String, &Value)| {
            let inherits = value.get("workspace").is_some();
            let value = if inherits { &shared[name] } else { value };
            (name.clone(), value.clone())
        };
        own.iter().chain(guest).map(settings).collect()
    }

    #[test]
    fn a_project_has_the_same_dependencies_as_the_sdk_of_the_workspace() {
        let of_project = dependencies("policy-sdk/templates/rust/sdk/Cargo.toml");
        assert_eq!(of_project, dependencies("policy-sdk/Cargo.toml"));
        let package = table("policy-sdk/templates/rust/sdk/Cargo.toml");
        let workspace = table("Cargo.toml");
        for key in ["version", "edition", "rust-version", "license"] {
            assert_eq!(
                package["package"][key], workspace["workspace"]["package"][key],
                "{key}"
            );
        }
    }

    /// Returns name, version and checksum of the packages of a lock file that a registry has.
    fn locked(path: &str) -> BTreeSet<[String; 3]> {
        let lock = table(path);
        let packages = lock["package"].as_array().unwrap().iter();
        let packages = packages.filter(|package| package.get("checksum").is_some());
        packages
            .map(|package| {
                ["name", "version", "checksum"].map(|key| package[key].as_str().unwrap().to_owned())
            })
            .collect()
    }

    #[test]
    fn a_project_locks_the_versions_that_the_shipped_policies_are_built_with() {
        let of_project = locked("policy-sdk/templates/rust/Cargo.lock");
        assert!(of_project.len() > 20, "{of_project:?}");
        let of_workspace = locked("Cargo.lock");
        let other: Vec<_> = of_project.difference(&of_workspace).collect();
        assert!(
            other.is_empty(),
            "run `cargo update` with these versions in the template: {other:?}"
        );
    }
}
