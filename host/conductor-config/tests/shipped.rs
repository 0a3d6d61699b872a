//! Shipped configuration files: they parse without a warning, and their comments are true.

use std::fs;
use std::path::{Path, PathBuf};

use conductor_config::{Config, Known, Paint};

const KNOWN: Known<'_> = Known {
    builtins: &[
        "cache-aware",
        "ttft-queue",
        "load-weighted",
        "round-robin",
        "tier-weight",
    ],
    former_builtins: &[],
    default_policy: "ttft-queue",
    files: &["my-policy", "next-policy"],
    has_admin_key: false,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

fn annotated() -> String {
    fs::read_to_string(folder().join("conductor.toml")).expect("conductor.toml is there")
}

/// Returns the configuration; fails on a warning too.
#[track_caller]
fn check(name: &str, text: &str) -> Config {
    let parsed = Config::parse(name, text, &KNOWN)
        .map_err(|mistakes| println!("{}", mistakes.render(Paint::Plain)))
        .expect("no mistakes in it");
    assert!(
        parsed.warnings.is_empty(),
        "{}",
        parsed.warnings.render(Paint::Plain)
    );
    parsed.config
}

#[test]
fn every_example_parses_without_a_warning() {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder().join("examples")).expect("the examples are there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("named").to_string_lossy().into_owned();
        check(&name, &fs::read_to_string(&path).expect("readable"));
        names.push(name);
    }
    names.sort();
    assert_eq!(
        names,
        [
            "front-door.toml",
            "indexer.toml",
            "own-policy.toml",
            "prefill-decode.toml",
            "two-workers.toml",
            "vllm-kv-events.toml"
        ]
    );
}

#[test]
fn the_annotated_file_states_the_defaults() {
    let annotated = check("conductor.toml", &annotated());
    let minimal = check("minimal", include_str!("cases/minimal.toml"));
    assert_eq!(annotated.without_places(), minimal.without_places());
}

/// Returns the annotated file with its optional keys set.
fn uncommented() -> String {
    let text = annotated();
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(optional) if !optional.is_empty() && !optional.starts_with([' ', '#']) => optional,
        _ => line,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("policy = \"conductor\"", "policy = \"gentle\"")
}

#[test]
fn the_annotated_file_with_everything_uncommented_parses_too() {
    let config = check("conductor.toml", &uncommented());
    assert!(config.policy_dir.is_some());
    assert_eq!(config.pools[0].workers[0].kv_events.feeds().len(), 1);
    let minimal = check("minimal", include_str!("cases/minimal.toml"));
    assert_eq!(config.policies[0].limits, minimal.policies[0].limits);
    assert_eq!(config.policies[0].circuit, minimal.policies[0].circuit);
}

/// Replaces a line by one of the same length, so that all positions stay.
fn with_line(text: &str, at: usize, new: &str) -> String {
    let line = |(number, line): (usize, &str)| match number == at {
        true => format!("{new:0$}", line.len()),
        false => line.to_owned(),
    };
    text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_defaults_that_the_annotated_file_states_for_optional_keys_are_true() {
    // A temperature is a mistake without `softmax`, which is not the default.
    let text = uncommented().replace("\ntemperature = ", "\n#emperature = ");
    let config_of = |key: &str, text: &str| {
        let mut config = check(key, text);
        for policy in &mut config.policies {
            policy.params_at = None;
        }
        config
    };
    let (mut untrue, mut checked) = (Vec::new(), 0);
    for (at, line) in text.lines().enumerate() {
        let Some((setting, default)) = line.split_once(" # default").filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        let key = setting.split(" = ").next().expect("a key with a value");
        let stated = match default.strip_prefix(": ") {
            Some(default) => format!("{key} = {default}"),
            None => setting.to_owned(),
        };
        let with = config_of(key, &with_line(&text, at, &stated));
        let without = config_of(key, &with_line(&text, at, &format!("#{}", &setting[1..])));
        if with != without {
            untrue.push(line);
        }
        checked += 1;
    }
    assert!(untrue.is_empty(), "{untrue:#?}");
    assert!(checked > 40, "{checked} defaults were checked");
}

#[test]
fn the_annotated_file_shows_every_key_there_is() {
    // An unknown key makes the reader list the known ones. The probes cover section by section.
    let probes = [
        ("zzzzzzzz = 1\n", "top"),
        ("[server]\nzzzzzzzz = 1\n", "server"),
        ("[log]\nzzzzzzzz = 1\n", "log"),
        ("[index]\nzzzzzzzz = [1, 2]\n", "index"),
        ("[indexer]\nzzzzzzzz = 1\n", "indexer"),
        (
            "[[indexer.services]]\nendpoint = \"tcp://a:1\"\nmodel = \"m\"\ninstance = \"i\"\nblock-size = 1\nzzzzzzzz = 1\n",
            "service",
        ),
        ("[record]\nzzzzzzzz = 1\n", "record"),
        ("[tokens]\nzzzzzzzz = 1\n", "tokens"),
        ("[models.m]\nzzzzzzzz = 1\n", "model"),
        ("[policies.p]\nzzzzzzzz = 1\n", "policy"),
        ("[policies.p]\nlimits.zzzzzzzz = 1\n", "limits"),
        ("[policies.p]\ncircuit.zzzzzzzz = 1\n", "circuit"),
        ("[policies.p]\npipeline.zzzzzzzz = 1\n", "pipeline"),
        (
            "[policies.p]\npipeline.filters = [{ label = \"a\", zzzzzzzz = 1 }]\n",
            "filter by a label",
        ),
        (
            "[policies.p]\npipeline.filters = [{ feature = \"load.requests\", zzzzzzzz = 1 }]\n",
            "filter by a feature",
        ),
        ("[policies.p]\npipeline.scorers = [{ zzzzzzzz = 1 }]\n", "scorer"),
        ("[pools.p]\nzzzzzzzz = 1\n", "pool"),
        ("[server]\nadmin-api-key.zzzzzzzz = 1\n", "key"),
        ("[clients.c]\nzzzzzzzz = 1\n", "client"),
        ("[pools.p]\npd = { dialect = \"nixl\", zzzzzzzz = 1 }\n", "pd"),
        ("[pools.p]\nauthorization.zzzzzzzz = 1\n", "authorization"),
        ("[pools.p]\nadmission.zzzzzzzz = 1\n", "admission"),
        ("[pools.p]\nhealth.zzzzzzzz = 1\n", "health"),
        ("[pools.p]\nscrape.zzzzzzzz = 1\n", "scrape"),
        ("[pools.p]\nmodel-list.zzzzzzzz = 1\n", "model-list"),
        ("[pools.p]\nretries.zzzzzzzz = 1\n", "retries"),
        ("[pools.p]\ntimeouts.zzzzzzzz = 1\n", "timeouts"),
        ("[[pools.p.workers]]\nzzzzzzzz = 1\n", "worker"),
        (
            "[[pools.p.workers]]\ndata-parallel = { ranks = 1, zzzzzzzz = 1 }\n",
            "data-parallel",
        ),
        (
            "[pools.a]\n[discovery.s]\npool = \"a\"\nfile-sd = \"t\"\nzzzzzzzz = 1\n",
            "source",
        ),
        (
            "[pools.a]\n[discovery.s]\npool = \"a\"\nkubernetes = { service = \"s\", zzzzzzzz = 1 }\n",
            "kubernetes",
        ),
        ("[stores.s]\nzzzzzzzz = 1\n", "store"),
        ("[[routes]]\nzzzzzzzz = 1\n", "route"),
        ("[[routes]]\nmatch.zzzzzzzz = 1\n", "match"),
        ("[[routes]]\ncanary.zzzzzzzz = 1\n", "canary"),
    ];
    let shown = uncommented();
    for (probe, what) in probes {
        let mistakes = Config::parse("probe", probe, &KNOWN).expect_err("the key is unknown");
        let unknown = mistakes
            .items()
            .iter()
            .find(|item| item.message.contains("zzzzzzzz"));
        let help = unknown
            .and_then(|item| item.help.as_deref())
            .expect("it lists the keys");
        let keys: Vec<&str> = help.split('`').skip(1).step_by(2).collect();
        assert!(!keys.is_empty(), "{what}");
        for key in keys {
            let forms = [format!("{key} = "), format!("[{key}"), format!(".{key}]")];
            let is_shown = forms.iter().any(|form| shown.contains(form));
            assert!(is_shown, "`{key}` of {what} is not in conductor.toml");
        }
    }
}
