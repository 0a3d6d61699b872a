//! Snapshots of every file of `cases/`: its diagnostics and its meaning.
//! `INSTA_UPDATE=always cargo test -p conductor-config` writes them again: read what changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use conductor_config::{Code, Config, Known, Paint, PolicySource};

const KNOWN: Known<'_> = Known {
    builtins: &["cache-aware", "load-weighted", "round-robin"],
    former_builtins: &[("cache-old", "cache-aware")],
    default_policy: "cache-aware",
    files: &["own", "dropped", "in-the-folder"],
    has_admin_key: false,
};

/// Returns name and text of every case, in order.
fn cases() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<(String, String)> = fs::read_dir(folder)
        .expect("the cases are there")
        .map(|entry| {
            let path = entry.expect("readable").path();
            let name = path.file_stem().expect("named").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("readable"))
        })
        .collect();
    cases.sort();
    cases
}

#[test]
fn every_case_reads_as_its_snapshot() {
    for (name, text) in cases() {
        let outcome = match Config::parse("conductor.toml", &text, &KNOWN) {
            Ok(parsed) => format!("{}{:#?}", parsed.warnings.render(Paint::Plain), parsed.config),
            Err(mistakes) => format!("{}{mistakes}", mistakes.render(Paint::Plain)),
        };
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, outcome);
        });
    }
}

#[test]
fn the_cases_bring_up_every_code_but_the_size_of_the_file() {
    let seen: BTreeSet<Code> = cases()
        .iter()
        .flat_map(|(_, text)| match Config::parse("conductor.toml", text, &KNOWN) {
            Ok(parsed) => parsed.warnings.items().to_vec(),
            Err(mistakes) => mistakes.items().to_vec(),
        })
        .map(|item| item.code)
        .collect();
    let unseen: Vec<_> = Code::ALL.iter().filter(|code| !seen.contains(code)).collect();
    // The others are known only once what the file names is read.
    let others = [
        &Code::FileTooLarge,
        &Code::NotUtf8,
        &Code::PolicyUnavailable,
        &Code::TokenizerUnavailable,
        &Code::ChatsWithoutTokens,
        &Code::CertificateUnavailable,
        &Code::KeyUnavailable,
        &Code::RefusedParam,
        &Code::KeyNotHere,
        &Code::FileNotHere,
        &Code::IgnoredPolicyFile,
    ];
    assert_eq!(unseen, others);
}

#[test]
fn the_list_of_policies_has_each_name_once() {
    let known = Known {
        files: &["own", "round-robin"],
        ..KNOWN
    };
    let text = "policy-dir = \"policies.d\"\n[policies.own]\n[[pools.main.workers]]\nurl = \"http://a:1\"\n\
                [[routes]]\npool = \"main\"\npolicy = \"nothing-like-it\"\n";
    let mistakes = Config::parse("conductor.toml", text, &known).unwrap_err();
    let items = mistakes.items().iter();
    let unknown = items.filter(|item| item.code == Code::NoSuchPolicy);
    let help: String = unknown.filter_map(|item| item.help.clone()).collect();
    for name in ["`own`", "`round-robin`"] {
        assert_eq!(help.matches(name).count(), 1, "{help}");
    }
}

#[test]
fn a_file_named_like_a_builtin_is_not_loaded_unless_a_table_takes_a_file() {
    let known = Known {
        files: &["own", "round-robin"],
        ..KNOWN
    };
    let rest = "[[pools.main.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"main\"\npolicy = \"round-robin\"\n";
    let read = |table: &str| {
        let text = format!("policy-dir = \"policies.d\"\n{table}{rest}");
        let parsed = Config::parse("conductor.toml", &text, &known).unwrap();
        let warnings: Vec<_> = parsed
            .warnings
            .items()
            .iter()
            .map(|item| (item.primary.location.line, item.code, item.help.clone().unwrap()))
            .collect();
        let policies = parsed.config.policies.into_iter();
        (policies.map(|policy| policy.source).collect::<Vec<_>>(), warnings)
    };
    let builtin = PolicySource::Builtin("round-robin".to_owned());
    for table in ["", "[policies.round-robin]\nbuiltin = \"round-robin\"\n"] {
        let (sources, warnings) = read(table);
        assert_eq!(sources, std::slice::from_ref(&builtin), "{table}");
        assert_eq!(
            (warnings.len(), warnings[0].0, warnings[0].1),
            (1, 1, Code::IgnoredPolicyFile)
        );
        assert!(
            warnings[0].2.contains("[policies.round-robin]"),
            "{}",
            warnings[0].2
        );
    }
    assert_eq!(
        read("[policies.round-robin]\n"),
        (vec![PolicySource::Folder], vec![])
    );
    let (sources, warnings) = read("[policies.round-robin]\npath = \"policies.d/round-robin.wasm\"\n");
    assert!(sources[0].is_file() && warnings.is_empty(), "{sources:?}");
}

#[test]
fn eight_mistakes_are_reported_in_one_run_with_place_and_cure() {
    let text = include_str!("cases/eight-mistakes.toml");
    let mistakes = Config::parse("conductor.toml", text, &KNOWN).expect_err("it has mistakes");
    let found: Vec<(usize, usize, &str)> = mistakes
        .items()
        .iter()
        .map(|item| {
            let place = item.primary.location;
            (place.line, place.column, item.code.as_str())
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, 1, "unknown-key"),
            (4, 1, "unknown-key"),
            (5, 17, "missing-unit"),
            (8, 15, "wrong-type"),
            (11, 7, "invalid-address"),
            (12, 8, "invalid-value"),
            (15, 8, "no-such-pool"),
            (16, 10, "no-such-policy"),
        ]
    );
}

#[test]
fn a_file_too_large_is_refused_unread() {
    let text = "#".repeat(conductor_config::MAX_FILE_BYTES + 1);
    let mistakes = Config::parse("conductor.toml", &text, &KNOWN).expect_err("it is too large");
    assert_eq!(mistakes.items()[0].code, Code::FileTooLarge);
}

#[test]
fn colour_changes_nothing_but_the_escapes() {
    let text = include_str!("cases/eight-mistakes.toml");
    let mistakes = Config::parse("conductor.toml", text, &KNOWN).expect_err("it has mistakes");
    let coloured = mistakes.render(Paint::Ansi);
    assert!(coloured.contains("\u{1b}["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').expect("an escape ends").1;
    }
    assert_eq!(plain + rest, mistakes.render(Paint::Plain));
}
