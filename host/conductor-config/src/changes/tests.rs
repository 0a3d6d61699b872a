//! Tests of the changes by an edit, as they are logged.

use super::*;
use crate::Known;

/// Built-in policies of the tests.
const BUILTINS: [&str; 3] = ["cache-aware", "round-robin", "ttft-queue"];

const BASE: &str = r#"
[server]
listen = "127.0.0.1:8080"

[policies.tuned]
builtin = "cache-aware"
params = { backlog-price = 0.5 }

[pools.chat]
queue-limit = 10

[[pools.chat.workers]]
name = "w0"
url = "http://a:1"

[[pools.chat.workers]]
name = "w1"
url = "http://a:2"

[[routes]]
match = { model = "llama" }
pool = "chat"
policy = "tuned"

[[routes]]
pool = "chat"
policy = "round-robin"
"#;

fn config(text: &str) -> Config {
    let known = Known {
        builtins: &BUILTINS,
        former_builtins: &[],
        default_policy: "ttft-queue",
        files: &[""; 0],
        has_admin_key: false,
    };
    match Config::parse("conductor.toml", text, &known) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => panic!("{mistakes:?}"),
    }
}

/// Checks the changes that `edits` (old and new text) make to [`BASE`].
#[track_caller]
fn check(edits: &[(&str, &str)], expected: &str) {
    let mut text = BASE.to_owned();
    for (old, new) in edits {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    let changes = ConfigChanges::between(&config(BASE), &config(&text));
    assert_eq!(changes.to_string(), expected);
}

#[test]
fn a_comment_changes_nothing_wherever_it_moves_the_rest() {
    check(&[("[server]", "# moved\n\n# down\n[server]")], "none");
}

/// Configuration whose every item is marked with its place in the file.
const MARKED: &str = r#"
[server]
admin-api-key = { file = "admin" }
[server.tls]
cert = "server.crt"
key = "server.key"
client-ca = "clients.crt"
[clients.someone]
key = { file = "someone" }
[policies.tuned]
builtin = "cache-aware"
params = { backlog-price = 0.5 }
[policies.pinned]
path = "pinned.wasm"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[policies.mixed]
pipeline = { scorers = [{ policy = "tuned", weight = 1 }] }
[models.m]
tokenizer = "tokenizer.json"
[log]
level = "debug"
[indexer]
api-key = { file = "indexer" }
[traces]
endpoint = "http://c:4318"
headers = { x-key = { env = "KEY" } }
[replicas]
servers = ["nats://n:4222"]
credentials = "router.creds"
user = "router"
password-file = "password"
ca = "nats.crt"
[discovery.registry]
pool = "chat"
http-sd = "https://s/"
bearer = { file = "bearer" }
ca = "registry.crt"
[discovery.cluster]
pool = "chat"
kubernetes = { service = "vllm", token = { file = "token" }, ca = "cluster.crt" }
[pools.chat]
authorization = { file = "engine" }
kv-curve = { server-key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", client-key = { file = "curve" } }
[pools.chat.tls]
ca = "ca.crt"
cert = "router.crt"
key = "router.key"
[[pools.chat.workers]]
url = "https://a:1"
[[routes]]
pool = "chat"
policy = "mixed"
"#;

#[test]
fn no_place_in_the_file_counts_as_a_change() {
    let moved = format!("\n\n# a comment\n{MARKED}");
    let changes = ConfigChanges::between(&config(MARKED), &config(&moved));
    assert_eq!(changes.to_string(), "none");
    assert!(changes.is_empty());
    assert_eq!(restart_keys(&config(MARKED), &config(&moved)), [""; 0]);
    let without = format!("{:?}", config(&moved).without_places());
    let places = without.matches("Location {").count();
    let beginning = without.matches("Location { line: 1, column: 1 }").count();
    assert_eq!(places, beginning, "{without}");
}

#[test]
fn workers_are_named_as_they_come_go_and_change() {
    check(
        &[
            ("name = \"w0\"", "name = \"w2\""),
            ("url = \"http://a:2\"", "url = \"http://a:2\"\nweight = 2"),
        ],
        "workers: 1 added (w2), 1 removed (w0), 1 changed (w1)",
    );
}

#[test]
fn policies_routes_and_their_splits_are_named() {
    check(
        &[
            ("backlog-price = 0.5", "backlog-price = 0.7"),
            (
                "policy = \"round-robin\"",
                "policy = \"round-robin\"\nsplit = { round-robin = 90, tuned = 10 }",
            ),
        ],
        "policies: 1 changed (tuned); splits: 1 changed (* -> chat)",
    );
    check(
        &[("policy = \"round-robin\"", "policy = \"tuned\"")],
        "policies: 1 removed (round-robin); routes: 1 changed (* -> chat)",
    );
    check(
        &[("match = { model = \"llama\" }", "match = { model = \"qwen\" }")],
        "routes: 1 added (model=qwen -> chat), 1 removed (model=llama -> chat)",
    );
}

#[test]
fn routes_that_change_places_are_reported_by_their_order() {
    let routes = BASE.find("[[routes]]").unwrap();
    let (head, routes) = BASE.split_at(routes);
    let second = routes.rfind("[[routes]]").unwrap();
    let (first, second) = routes.split_at(second);
    // The first must not take everything: both have a condition.
    let second = second.replace("pool =", "match = { model = \"qwen\" }\npool =");
    let (was, is) = (format!("{head}{first}{second}"), format!("{head}{second}{first}"));
    let changes = ConfigChanges::between(&config(&was), &config(&is));
    assert_eq!(changes.to_string(), "routes: 1 changed (order)");
}

#[test]
fn keys_of_pools_and_of_single_tables_are_named() {
    check(
        &[
            ("queue-limit = 10", "queue-limit = 20\nhealth = { failures = 7 }"),
            ("127.0.0.1:8080\"", "127.0.0.1:9080\"\nheader-limit = \"8KiB\""),
            (
                "[policies.tuned]",
                "[log]\nlevel = \"debug\"\naccess = \"-\"\naccess-sample = 0\n[policies.tuned]",
            ),
        ],
        "pools: 2 changed (chat.queue-limit, chat.health); \
         settings: 5 changed (server.listen, server.header-limit, log.level, log.access, log.access-sample)",
    );
}

#[test]
fn traces_are_compared_key_by_key_once_they_are_on() {
    let on =
        "[traces]\nendpoint = \"http://c:4318\"\nheaders = { x-key = { env = \"KEY\" } }\n[policies.tuned]";
    let text = BASE.replacen("[policies.tuned]", on, 1);
    let summary = |was: &str, is: &str| ConfigChanges::between(&config(was), &config(is)).to_string();
    assert_eq!(summary(BASE, &text), "settings: 1 changed (traces)");
    let moved = text.replace("[traces]", "\n\n[traces]");
    assert_eq!(summary(&text, &moved), "none");
    let other = text.replace("[traces]", "[traces]\nsample = 1\nslow = \"2s\"");
    assert_eq!(
        summary(&text, &other),
        "settings: 2 changed (traces.sample, traces.slow)"
    );
}

#[test]
fn a_long_list_is_cut_short_in_a_log_line_and_whole_on_a_page() {
    let worker =
        |number| format!("[[pools.chat.workers]]\nname = \"x{number}\"\nurl = \"http://b:{number}\"\n");
    let more: String = (1..=20).map(worker).collect();
    let text = BASE.replacen("[[routes]]", &format!("{more}\n[[routes]]"), 1);
    let changes = ConfigChanges::between(&config(BASE), &config(&text));
    assert_eq!(
        changes.to_string(),
        "workers: 20 added (x1, x2, x3, x4, x5, x6, x7, x8 and 12 more)"
    );
    let page = serde_json::to_value(&changes).unwrap();
    assert_eq!(page["workers"]["added"].as_array().map(Vec::len), Some(20));
    assert!(page.get("pools").is_none(), "what is empty is left out: {page}");
}

#[test]
fn the_value_of_a_header_is_not_shown() {
    let text = BASE.replace(
        "match = { model = \"llama\" }",
        "match = { model = \"llama\", header = { x-tenant = \"secret\" } }",
    );
    let changes = ConfigChanges::between(&config(BASE), &config(&text)).to_string();
    assert!(
        changes.contains("header=x-tenant") && !changes.contains("secret"),
        "{changes}"
    );
}
