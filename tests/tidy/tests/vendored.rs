//! The libraries of the dashboard are the bytes that `host/dashboard/vendor.sh` fetched.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use sha2::{Digest, Sha256};
use tidy::root;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn the_vendored_libraries_are_those_of_the_manifest() {
    let folder = root().join("host/dashboard/ui/vendor");
    let manifest = fs::read_to_string(folder.join("MANIFEST")).expect("a manifest");
    let mut listed = BTreeSet::from(["MANIFEST".to_owned()]);
    for line in manifest.lines() {
        let (hash, name) = line.split_once("  ").expect("HASH  NAME");
        let bytes = fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            hex(&Sha256::digest(&bytes)),
            hash,
            "{name}: run host/dashboard/vendor.sh"
        );
        listed.insert(name.to_owned());
    }
    let entries = fs::read_dir(&folder).expect("the folder");
    let there: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    assert_eq!(there, listed);
}

#[test]
fn the_notice_names_every_vendored_library_with_its_version() {
    let script = fs::read_to_string(root().join("host/dashboard/vendor.sh")).expect("the script");
    let notice = fs::read_to_string(root().join("NOTICE")).expect("the notice");
    let versions = script.lines().filter_map(|line| line.split_once('='));
    let versions = versions.filter(|(name, _)| ["PREACT", "HTM", "UPLOT"].contains(name));
    let mut found = 0;
    for (name, version) in versions {
        let library = format!("{} {version}", name.to_lowercase());
        assert!(notice.to_lowercase().contains(&library), "NOTICE lacks {library}");
        found += 1;
    }
    assert_eq!(found, 3);
}
