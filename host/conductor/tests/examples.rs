//! Every configuration that the project shows parses, without a warning but of files that its reader is to put there.
//! So does every command line of its pages.

use clap::Parser;
use conductor::cli::Cli;
use conductor::{ConfigSource, builtin};
use tidy::commands::{calls_of_page, conductor_calls};
use tidy::files;

/// Returns a folder with the policies that examples expect there.
fn with_policies() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policies = folder.path().join("policies.d");
    std::fs::create_dir(&policies).expect("a fresh folder");
    // The examples have its parameters.
    let component = builtin::find("cache-aware").expect("it is built in").bytes;
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

#[test]
fn every_command_of_a_page_parses() {
    let (mut refused, mut checked) = (Vec::new(), 0);
    for page in files(&["md"]) {
        for call in calls_of_page(&page.text) {
            checked += 1;
            if let Err(error) = Cli::try_parse_from(&call.words) {
                refused.push(format!(
                    "{}:{}: {}: {error}",
                    page.path,
                    call.line,
                    call.words.join(" ")
                ));
            }
        }
    }
    assert!(checked > 100, "{checked} commands were found");
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn a_flag_that_does_not_exist_is_refused() {
    let calls = conductor_calls("conductor check --no-such-flag conductor.toml");
    assert_eq!(calls.len(), 1);
    assert!(Cli::try_parse_from(&calls[0]).is_err());
}
