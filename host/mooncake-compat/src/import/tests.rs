//! Tests of both shapes: text of our own, and upstream's samples if the shared data is present.

use conductor_config::{Code, Paint};

use super::*;
use crate::tests::diagnostics_of;

#[track_caller]
fn imported(text: &str, environment: &LegacyEnvironment) -> ImportedConfig {
    let imported = import("old.json", text, environment).unwrap();
    let diagnostics = diagnostics_of(&imported.toml);
    // The older conductor listened on every interface, without a key.
    let mut others = diagnostics
        .items()
        .iter()
        .filter(|item| item.code != Code::OpenListener);
    assert!(
        others.next().is_none(),
        "{}\n{}",
        imported.toml,
        diagnostics.render(Paint::Plain)
    );
    imported
}

fn services(toml: &str) -> Vec<&str> {
    toml.split("\n[[indexer.services]]\n").skip(1).collect()
}

#[test]
fn the_first_shape_gets_endpoints_and_the_global_block_size() {
    let text = r#"{"kvevent_instance": {
        "a": {"ip": "10.0.0.1", "port": 5557, "type": "vLLM", "modelname": "qwen", "lora_id": -1},
        "b": {"ip": "::1", "port": 5557, "type": "vLLM", "modelname": "qwen", "lora_id": 3}
    }, "http_server_port": 7000}"#;
    let environment = LegacyEnvironment {
        block_size: Some("64".into()),
        log_level: Some("Debug".into()),
        ..LegacyEnvironment::default()
    };
    let imported = imported(text, &environment);
    assert!(imported.toml.contains("listen = \"0.0.0.0:7000\""));
    assert!(imported.toml.contains("[log]\nlevel = \"debug\""));
    assert_eq!(
        services(&imported.toml),
        [
            "endpoint = \"tcp://10.0.0.1:5557\"\nreplay = \"tcp://10.0.0.1:5558\"\ntype = \"vllm\"\nmodel = \"qwen\"\n\
             instance = \"a\"\ntenant = \"default\"\nblock-size = 64\nrank = 0\n",
            "endpoint = \"tcp://[::1]:5557\"\nreplay = \"tcp://[::1]:5558\"\ntype = \"vllm\"\nmodel = \"qwen\"\n\
             instance = \"b\"\ntenant = \"default\"\nblock-size = 64\nrank = 0\n",
        ]
    );
    assert_eq!(imported.warnings.len(), 1, "{:?}", imported.warnings);
    assert!(imported.warnings[0].starts_with("`b`: `lora_id`"));
}

#[test]
fn the_later_shape_keeps_its_fields() {
    let text = r#"{"http_server_port": 13333, "kvevent_instance": {"key": {
        "endpoint": "tcp://10.0.0.1:5557", "replay_endpoint": "", "type": "SGLang", "modelname": "a \"b\"",
        "lora_name": "ad", "tenant_id": "", "instance_id": "i", "block_size": 16, "dp_rank": 2, "cache_group": null,
        "hash_profile": {"strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0",
                         "index_projection": "low64_be"}}}}"#;
    let imported = imported(text, &LegacyEnvironment::default());
    assert_eq!(imported.warnings, [""; 0]);
    assert_eq!(
        services(&imported.toml),
        [
            "endpoint = \"tcp://10.0.0.1:5557\"\ntype = \"sglang\"\nmodel = \"a \\\"b\\\"\"\ninstance = \"i\"\n\
             tenant = \"default\"\nlora = \"ad\"\nhash-algorithm = \"sha256_cbor\"\npython-hash-seed = \"0\"\n\
             block-size = 16\nrank = 2\n"
        ]
    );
}

#[test]
fn a_model_may_have_a_long_path_for_a_name() {
    for (bytes, carried) in [(512, 1), (513, 0)] {
        let text = format!(
            r#"{{"http_server_port": 1, "kvevent_instance": {{"key": {{"endpoint": "tcp://a:1", "type": "vLLM",
            "modelname": "{}", "instance_id": "i", "block_size": 16, "dp_rank": 0}}}}}}"#,
            "m".repeat(bytes)
        );
        let imported = imported(&text, &LegacyEnvironment::default());
        assert_eq!(services(&imported.toml).len(), carried, "{:?}", imported.warnings);
    }
}

#[test]
fn settings_without_a_counterpart_are_left_out_with_a_warning() {
    let entry = |fields: &str| {
        format!(
            r#"{{"kvevent_instance": {{"x": {{"type": "vLLM", "modelname": "m", "block_size": 16, {fields}}}}}, "http_server_port": 1}}"#
        )
    };
    let check = |text: &str, carried: usize, expected: &str| {
        let imported = imported(text, &LegacyEnvironment::default());
        assert_eq!(services(&imported.toml).len(), carried, "{text}");
        let warnings = imported.warnings.join("\n");
        assert!(warnings.contains(expected), "{text}: {warnings}");
        assert!(imported.toml.contains(expected), "the warning is in the file too");
    };
    check(
        &entry(r#""endpoint": "tcp://*:1""#),
        0,
        "left out: `tcp://*:1` is not",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "cache_group": 1"#),
        0,
        "cache_group",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "block_size": 0"#),
        0,
        "no `block_size`",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "type": "X""#),
        0,
        "its type `X`",
    );
    check(
        &entry(r#""ip": "gpu", "port": 1"#),
        0,
        "`ip` is not an IP address",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "additionalsalt": "s""#),
        1,
        "additionalsalt",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "hash_profile": {}"#),
        1,
        "`hash_profile` is left out",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "replay_endpoint": "x""#),
        1,
        "it has no replay",
    );
    check(
        &entry(r#""endpoint": "tcp://a:1", "new": 1"#),
        1,
        "`new` is not known",
    );
    check(r#"{"kvevent_instance": {}}"#, 0, "13333 is taken");
    check(
        r#"{"kvevent_instance": 1, "http_server_port": 1}"#,
        0,
        "is not an object",
    );
}

#[test]
fn an_invalid_hash_profile_is_left_out_with_the_reason() {
    let check = |changes: Value, expected: &str| {
        let mut profile = serde_json::json!({
            "strategy": "vllm_v1", "algorithm": "sha256", "python_hash_seed": "0", "index_projection": "low64_be",
        });
        match changes {
            Value::Object(changes) => profile.as_object_mut().unwrap().extend(changes),
            other => profile = other,
        }
        let text = serde_json::json!({"http_server_port": 1, "kvevent_instance": {"x": {
            "endpoint": "tcp://a:1", "type": "vLLM", "modelname": "m", "block_size": 16, "hash_profile": profile,
        }}});
        let imported = imported(&text.to_string(), &LegacyEnvironment::default());
        assert_eq!(services(&imported.toml).len(), 1, "the service stays");
        assert!(!imported.toml.contains("hash-algorithm"), "{}", imported.toml);
        assert_eq!(
            imported.warnings,
            [format!("`x`: `hash_profile` is left out: {expected}")]
        );
    };
    let json = |text: &str| serde_json::from_str(text).unwrap();
    check(json("null"), "it is not an object");
    check(json(r#"{"root_digest": "ab"}"#), "`root_digest` is not known");
    check(
        json(r#"{"strategy": "v2"}"#),
        "its `strategy` is `v2`, none of vllm_v1",
    );
    check(
        json(r#"{"algorithm": "md5"}"#),
        "its `algorithm` is `md5`, none of sha256, sha256_cbor, xxhash, xxhash_cbor",
    );
    check(json(r#"{"algorithm": 1}"#), "its `algorithm` is not a string");
    check(
        json(r#"{"index_projection": "high64"}"#),
        "its `index_projection` is `high64`, none of low64_be",
    );
    for seed in ["abc", "", "4294967296", "+1"] {
        let expected =
            format!("its `python_hash_seed` is `{seed}`, neither a number up to 4294967295 nor `random`");
        check(serde_json::json!({"python_hash_seed": seed}), &expected);
    }
}

#[test]
fn old_variables_are_mapped_or_explained() {
    let environment = LegacyEnvironment::read(|name| match name {
        "CONDUCTOR_LOG_LEVEL" => Some("loud".into()),
        "CONDUCTOR_BLOCK_SIZE" => Some("none".into()),
        "CONDUCTOR_SEED" => Some("7".into()),
        "NONE_HASH" => Some("1234".into()),
        _ => Some("".into()),
    });
    assert_eq!(environment.config_path, None);
    let imported = imported(r#"{"http_server_port": 1}"#, &environment);
    for expected in [
        "CONDUCTOR_LOG_LEVEL is `loud`",
        "CONDUCTOR_BLOCK_SIZE is `none`",
        "CONDUCTOR_SEED",
        "NONE_HASH",
    ] {
        assert!(
            imported.warnings.iter().any(|warning| warning.contains(expected)),
            "{expected}"
        );
    }
    assert_eq!(environment.ignored().len(), 4);
    assert_eq!(LegacyEnvironment::default().ignored(), [""; 0]);
}

#[test]
fn other_files_are_refused() {
    let none = LegacyEnvironment::default();
    assert!(matches!(
        import("a", "[server]", &none),
        Err(ImportError::Json { .. })
    ));
    assert!(matches!(
        import("a", "[]", &none),
        Err(ImportError::NotAnObject { .. })
    ));
}

#[test]
fn upstreams_own_samples_are_imported() {
    let check = |name: &str, expected: &[&str]| {
        let path = format!(
            "{}/../../../shared/data/fixtures/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let Ok(text) = std::fs::read_to_string(&path) else {
            return eprintln!("skipped: `{path}` is not there");
        };
        let imported = imported(&text, &LegacyEnvironment::default());
        assert_eq!(services(&imported.toml).len(), 2, "{}", imported.toml);
        assert_eq!(imported.warnings, expected);
    };
    check("conductor_config.gen0-ip-port.json", &[]);
    check(
        "conductor_config.gen1-endpoint.json",
        &[
            "`mooncake`: another service has the instance `vllm-prefill-node1` too, so this one is called `mooncake`",
        ],
    );
}
