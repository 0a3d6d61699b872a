//! A command line of each router, and the check of what is printed.

use conductor_config::{Config, Known};

use super::*;

/// Built-in policies that the tables of flags name.
const BUILTINS: [&str; 10] = [
    "ttft-queue",
    "round-robin",
    "random",
    "power-of-two",
    "consistent-hash-bounded-load",
    "session-affinity",
    "prefix-hash",
    "least-request",
    "tier-weight",
    "lora-affinity",
];

/// Translates a command line, and checks that the printed text is a configuration without errors.
#[track_caller]
fn import(router: ForeignRouter, line: &str) -> ImportedText {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let imported = import_flags(router, &words);
    check(&imported.toml);
    imported
}

#[track_caller]
fn check(toml: &str) {
    let known = Known {
        builtins: &BUILTINS,
        former_builtins: &[],
        default_policy: "ttft-queue",
        files: &[""; 0],
        has_admin_key: false,
    };
    let diagnostics = match Config::examine("conductor.toml", toml, &known) {
        Ok(examined) => examined.diagnostics,
        Err(mistakes) => mistakes,
    };
    assert_eq!(diagnostics.error_count(), 0, "{diagnostics}\n{toml}");
}

#[track_caller]
fn has(imported: &ImportedText, parts: &[&str]) {
    for part in parts {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
}

#[track_caller]
fn notes(imported: &ImportedText, parts: &[&str]) {
    let notes = imported.notes.join("\n");
    for part in parts {
        assert!(notes.contains(part), "{part}\n{notes}");
    }
}

#[test]
fn a_command_line_of_vllm_router_is_translated() {
    let imported = import(
        ForeignRouter::Vllm,
        "vllm-router --worker-urls http://a:8000 b:8000 --policy cache_aware --host 0.0.0.0 --port 30000 \
         --retry-max-retries 2 --retry-initial-backoff-ms=50 --retry-max-backoff-ms 5000 --cb-failure-threshold 5 \
         --health-check-endpoint /health --health-check-interval-secs 30 --max-concurrent-requests -1 \
         --queue-size 100 --queue-timeout-secs 60 --max-payload-size 536870912 --log-level WARNING \
         --intra-node-data-parallel-size 2 --kv-event-block-size 16 --cache-threshold 0.5 --api-key secret \
         --wasm-middleware x.wasm --no-such-flag 1",
    );
    has(
        &imported,
        &[
            "listen = \"0.0.0.0:30000\"",
            "url = \"http://b:8000\"",
            "policy = \"ttft-queue\"",
            "attempts = 2",
            "backoff = \"50ms\"",
            "failures = 5",
            "interval = \"30s\"",
            "queue-limit = 100",
            "request-body-limit = \"536870912B\"",
            "level = \"warn\"",
            "data-parallel = { ranks = 2 }",
            "authorization = { env = \"ENGINE_API_KEY\" }",
        ],
    );
    assert!(
        !imported.toml.contains("secret") && !imported.toml.contains("requests ="),
        "{}",
        imported.toml
    );
    notes(
        &imported,
        &[
            "`--cache-threshold`: no equivalent: set `params`",
            "`--kv-event-block-size`: not needed",
            "`--no-such-flag` is no flag",
            "ENGINE_API_KEY",
        ],
    );
}

#[test]
fn the_successes_of_probes_go_before_those_of_the_circuit_breaker_in_any_order() {
    let [probes, circuit] = ["--health-success-threshold 4", "--cb-success-threshold 7"];
    let of = |flags: &str| import(ForeignRouter::Vllm, &format!("--worker-urls http://a:1 {flags}"));
    for flags in [format!("{probes} {circuit}"), format!("{circuit} {probes}")] {
        let both = of(&flags);
        has(&both, &["healthy-after = 4"]);
        notes(
            &both,
            &["`--cb-success-threshold`: `healthy-after` has the value of `--health-success-threshold`"],
        );
    }
    has(&of(circuit), &["healthy-after = 7"]);
}

#[test]
fn a_time_of_one_key_goes_before_that_of_the_whole_request_in_any_order() {
    let [stall, whole] = [
        "--stream-body-stall-timeout-secs 30",
        "--request-timeout-secs 600",
    ];
    let repeated = format!("--request-timeout-secs 30 {whole} {stall}");
    for flags in [format!("{stall} {whole}"), format!("{whole} {stall}"), repeated] {
        let imported = import(
            ForeignRouter::Sglang,
            &format!("--worker-urls http://a:1 {flags}"),
        );
        has(
            &imported,
            &[
                "request-timeout = \"600s\"",
                "first-byte-timeout = \"600s\"",
                "idle-timeout = \"30s\"",
            ],
        );
    }
}

#[test]
fn a_switch_and_a_named_dialect_take_precedence_in_any_order() {
    let cases = [
        (
            ForeignRouter::Sglang,
            ["--disable-retries", "--retry-max-retries 5"],
            "attempts = 1\n",
        ),
        (
            ForeignRouter::Sglang,
            ["--disable-health-check", "--health-check-endpoint /health"],
            "path = \"off\"",
        ),
        (
            ForeignRouter::Vllm,
            ["--kv-connector mooncake", "--vllm-pd-disaggregation"],
            "dialect = \"mooncake-connector\"",
        ),
        (
            ForeignRouter::ProductionStack,
            ["--static-models m,n", "--static-backends http://a:1,http://b:1"],
            "url = \"http://b:1\"\nmodels = [\"n\"]",
        ),
    ];
    for (router, [one, other], expected) in cases {
        has(&import(router, &format!("{one} {other}")), &[expected]);
        has(&import(router, &format!("{other} {one}")), &[expected]);
    }
}

#[test]
fn policies_that_predict_caches_from_requests_get_assumed_caches() {
    let cases = [
        (
            ForeignRouter::Sglang,
            "--worker-urls http://a:1 --policy cache_aware",
            true,
        ),
        (ForeignRouter::Sglang, "--worker-urls http://a:1", true),
        (ForeignRouter::Vllm, "--worker-urls http://a:1", true),
        (
            ForeignRouter::Vllm,
            "--worker-urls http://a:1 --policy kv_aware",
            false,
        ),
        (
            ForeignRouter::Vllm,
            "--worker-urls http://a:1 --policy round_robin",
            false,
        ),
        (
            ForeignRouter::Vllm,
            "--prefill http://p:1 --decode http://d:1 --policy round_robin --prefill-policy cache_aware",
            true,
        ),
        (
            ForeignRouter::ProductionStack,
            "--static-backends http://a:1 --routing-logic prefixaware",
            true,
        ),
        (
            ForeignRouter::ProductionStack,
            "--static-backends http://a:1 --routing-logic kvaware",
            false,
        ),
        (ForeignRouter::Dynamo, "--router-mode kv", false),
    ];
    for (router, line, expected) in cases {
        let imported = import(router, line);
        let is_assumed = imported.toml.contains("[pools.main.assume-cache]");
        let is_noted = imported
            .notes
            .iter()
            .any(|note| note.contains("caches of workers"));
        assert_eq!(
            (is_assumed, is_noted),
            (expected, expected),
            "{line}\n{imported:?}"
        );
    }
}

#[test]
fn pods_have_the_ranks_of_the_command_line() {
    let imported = import(
        ForeignRouter::Vllm,
        "--service-discovery --selector app=x --intra-node-data-parallel-size 4",
    );
    has(&imported, &["[discovery.workers]\npool = \"main\"\nranks = 4\n"]);
}

#[test]
fn a_policy_by_priority_has_a_note_about_the_header() {
    let imported = import(
        ForeignRouter::ProductionStack,
        "--static-backends http://a:1 --routing-logic priority",
    );
    has(&imported, &["policy = \"ttft-queue\""]);
    notes(&imported, &["`--routing-logic`: set `priority-header`"]);
}

#[test]
fn prefill_and_decode_workers_of_vllm_router_are_split() {
    let imported = import(
        ForeignRouter::Vllm,
        "--vllm-pd-disaggregation --prefill http://p:1 8998 --prefill http://q:1 none --decode http://d:1 \
         --kv-connector mooncake --prefill-policy kv_aware --decode-policy power_of_two",
    );
    has(
        &imported,
        &[
            "dialect = \"mooncake-connector\"",
            "bootstrap = \"http://p:8998\"",
            "role = \"decode\"",
            "prefill-policy = \"ttft-queue\"",
            "decode-policy = \"power-of-two\"",
        ],
    );
    assert_eq!(imported.toml.matches("bootstrap").count(), 1, "{}", imported.toml);
}

#[test]
fn a_command_line_of_sglang_router_is_translated() {
    let imported = import(
        ForeignRouter::Sglang,
        "python -m sglang_router.launch_router --pd-disaggregation --prefill http://p:1 9001 --decode http://d:1 \
         --policy prefix_hash --shutdown-grace-period-secs 90 --sse-keepalive-secs 15 --log-json --disable-retries \
         --disable-health-check --upstream-pool-idle-timeout-secs 30 --jwt-issuer x --reasoning-parser qwen3 \
         --tenant-header-name x-team --policy manual",
    );
    has(
        &imported,
        &[
            "dialect = \"sglang\"",
            "bootstrap = \"http://p:9001\"",
            "policy = \"session-affinity\"",
            "drain-timeout = \"90s\"",
            "sse-keep-alive = \"15s\"",
            "format = \"json\"",
            "attempts = 1",
            "path = \"off\"",
            "idle-for = \"30s\"",
            "tenant-header = \"x-team\"",
        ],
    );
    notes(
        &imported,
        &[
            "`--jwt-issuer`: no equivalent: add a [clients.NAME]",
            "`--reasoning-parser`: not needed",
        ],
    );
}

#[test]
fn selectors_of_kubernetes_are_sources_of_workers() {
    let imported = import(
        ForeignRouter::Sglang,
        "--service-discovery --prefill-selector app=llm role=p --decode-selector app=llm role=d \
         --service-discovery-port 8000 --service-discovery-namespace prod --pd-disaggregation",
    );
    has(
        &imported,
        &[
            "[discovery.prefill]",
            "kubernetes = { selector = \"app=llm,role=p\", namespace = \"prod\", port = 8000 }",
        ],
    );
}

#[test]
fn a_command_line_of_dynamo_is_translated_and_its_workers_are_missed() {
    let imported = import(
        ForeignRouter::Dynamo,
        "python -m dynamo.frontend --http-host 0.0.0.0 --http-port 8000 --router-mode power-of-two \
         --router-temperature 0.5 --no-router-kv-events --kv-cache-block-size 16",
    );
    has(
        &imported,
        &[
            "listen = \"0.0.0.0:8000\"",
            "policy = \"power-of-two\"",
            "[pools.main.assume-cache]",
            "url = \"http://127.0.0.1:8000\"",
        ],
    );
    notes(
        &imported,
        &[
            "names no workers",
            "`softmax`",
            "assume-cache",
            "`--kv-cache-block-size`: not needed",
        ],
    );
}

#[test]
fn a_command_line_of_the_production_stack_is_translated() {
    let imported = import(
        ForeignRouter::ProductionStack,
        "vllm-router --port 8001 --service-discovery static --static-backends http://a:1,http://b:1 \
         --static-models llama,qwen --routing-logic roundrobin --engine-stats-interval 10 --session-key x-user \
         --otel-endpoint http://c:4317",
    );
    has(
        &imported,
        &[
            "url = \"http://b:1\"\nmodels = [\"qwen\"]",
            "policy = \"round-robin\"",
            "[pools.main.scrape]\ninterval = \"10s\"",
        ],
    );
    notes(&imported, &["`x-session-id`", "port 4318"]);
}

#[test]
fn values_of_other_kinds_and_unknown_policies_are_notes() {
    let imported = import(
        ForeignRouter::Vllm,
        "--worker-urls http://a:1 --queue-size many --policy bucket --request-timeout-secs 0 --port",
    );
    notes(
        &imported,
        &[
            "`many` is no whole number",
            "`bucket` has no equivalent",
            "the default of",
            "it has no value",
        ],
    );
    assert!(!imported.toml.contains("policy ="), "{}", imported.toml);
}

#[test]
fn without_flags_the_address_is_the_default_of_the_other_router() {
    let cases = [
        (ForeignRouter::Vllm, "--worker-urls http://a:1", "127.0.0.1:30000"),
        (ForeignRouter::Sglang, "--worker-urls http://a:1", "0.0.0.0:30000"),
        (ForeignRouter::Dynamo, "--http-port 9", "0.0.0.0:9"),
        (ForeignRouter::Dynamo, "--http-host 10.0.0.1", "10.0.0.1:8000"),
        (ForeignRouter::ProductionStack, "--port 8002", "0.0.0.0:8002"),
        (ForeignRouter::ProductionStack, "--host ::1", "[::1]:8001"),
    ];
    for (router, line, listen) in cases {
        has(&import(router, line), &[&format!("listen = \"{listen}\"")]);
    }
}

#[test]
fn a_mistyped_bootstrap_port_is_no_worker() {
    let imported = import(
        ForeignRouter::Sglang,
        "--prefill http://a:1 x --decode http://b:1",
    );
    notes(&imported, &["`--prefill`: `x` is neither a URL nor a port"]);
    assert!(!imported.toml.contains("http://x"), "{}", imported.toml);
}

#[test]
fn bootstrap_ports_are_written_where_workers_have_them_and_without_tls() {
    let imported = import(
        ForeignRouter::Vllm,
        "--vllm-pd-disaggregation --prefill http://a:1 8998 --decode http://b:1 --kv-connector nixl",
    );
    assert!(!imported.toml.contains("bootstrap"), "{}", imported.toml);
    notes(&imported, &["bootstrap ports are left out"]);
    let imported = import(
        ForeignRouter::Sglang,
        "--pd-disaggregation --prefill https://a:1 8998 --decode https://b:1",
    );
    has(
        &imported,
        &["url = \"https://a:1\"", "bootstrap = \"http://a:8998\""],
    );
}

#[test]
fn a_selector_that_is_given_twice_is_one_source() {
    let imported = import(
        ForeignRouter::Sglang,
        "--service-discovery --selector app=x --selector role=y",
    );
    has(&imported, &["selector = \"app=x,role=y\""]);
}

#[test]
fn the_admin_listener_has_a_port_of_its_own() {
    let cases = [
        ("--port 8081", Some("127.0.0.1:8082")),
        ("--port 9 --prometheus-port 9", Some("127.0.0.1:8081")),
        ("--port 8081 --prometheus-port 8081", Some("127.0.0.1:8082")),
        ("--port 8081 --prometheus-port 9", Some("127.0.0.1:9")),
        ("--port 9", None),
    ];
    for (line, admin) in cases {
        let imported = import(ForeignRouter::Sglang, &format!("--worker-urls http://a:1 {line}"));
        match admin {
            Some(admin) => has(&imported, &[&format!("admin-listen = \"{admin}\"")]),
            None => assert!(!imported.toml.contains("admin-listen"), "{}", imported.toml),
        }
    }
    import(ForeignRouter::Dynamo, "--http-port 8081");
}

#[test]
fn no_flag_is_listed_twice() {
    let tables: [(&str, &[FlagRule]); 5] = [
        ("vllm", vllm::RULES),
        ("sglang", sglang::RULES),
        ("shared", shared::RULES),
        ("dynamo", dynamo::RULES),
        ("production-stack", production_stack::RULES),
    ];
    for (table, rules) in tables {
        let mut names: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{table}");
    }
}
