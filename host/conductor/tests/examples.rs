//! Every configuration that the project shows parses, without a warning but of files that its reader is to put there.

use conductor::{ConfigSource, builtin};
use tidy::files;

/// Returns a folder with the policies that examples expect there.
fn with_policies() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policies = folder.path().join("policies.d");
    std::fs::create_dir(&policies).expect("a fresh folder");
    let component = builtin::find(builtin::DEFAULT)
        .expect("the default is built in")
        .bytes;
    for name in ["my-policy", "next-policy"] {
        std::fs::write(policies.join(format!("{name}.wasm")), component).expect("a writable folder");
    }
    folder
}

/// Beginnings of diagnostics about a file beside, which an example cannot bring.
const OF_FILES_BESIDE: [&str; 4] = [
    "[tokenizer-unavailable]",
    "[certificate-unavailable]",
    "[key-unavailable]",
    "[key-not-here]",
];

/// Returns whether a line begins any other diagnostic.
fn is_of_the_example(line: &&str) -> bool {
    let begins = line.starts_with("error[") || line.starts_with("warning[");
    begins && !OF_FILES_BESIDE.iter().any(|code| line.contains(code))
}

#[test]
fn every_example_configuration_is_valid() {
    let shown = files(&["toml"])
        .into_iter()
        .filter(|file| file.path.starts_with("config/"));
    let mut checked = 0;
    for file in shown {
        let folder = with_policies();
        let path = folder.path().join("conductor.toml");
        std::fs::write(&path, &file.text).unwrap();
        let rendered = conductor::check(&ConfigSource::File(path)).unwrap().rendered();
        let mut odd = rendered.lines().filter(is_of_the_example);
        assert_eq!(odd.next(), None, "{}:\n{rendered}", file.path);
        checked += 1;
    }
    assert!(checked >= 2, "config/ holds conductor.toml and examples");
}
