//! Tests of the live check over mock engines, and over servers with invalid replies.

use std::net::SocketAddr;

use harness::{Fleet, SplitFleet, workers_toml};
use live_check::{CheckResult, LiveCheck, render};
use mock_engine::{MockConfig, PdDialect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Returns the report about a configuration.
async fn live(toml: &str) -> LiveReport {
    let (config, resources) = read_named(&ConfigSource::Text(toml.to_owned())).unwrap();
    check_all(&pool_targets(&config, &resources), || ()).await
}

/// Returns a report without a warning or a failure.
async fn passed(toml: &str) -> LiveReport {
    let report = live(toml).await;
    assert_eq!((report.warned, report.failed), (0, 0), "{report:#?}");
    report
}

/// Starts a prefill and a decode worker.
async fn split(dialect: PdDialect) -> SplitFleet {
    SplitFleet::start(dialect, (1, 1), |_| {}).await.unwrap()
}

/// Returns the checks of the only worker of the only pool.
fn only_worker(report: &LiveReport) -> &[LiveCheck] {
    &report.pools[0].workers[0].checks
}

#[track_caller]
fn find<'r>(checks: &'r [LiveCheck], name: &str) -> &'r LiveCheck {
    let mut named = checks.iter().filter(|check| check.check == name);
    named.next().unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

/// Starts one mock engine with an event source, and configures more keys of its worker.
async fn one(adjust: impl Fn(&mut MockConfig), keys: &str) -> (Fleet, String) {
    let fleet = Fleet::start(1, |_, config| adjust(config)).await.unwrap();
    let url = fleet.engines[0].url();
    let toml = format!("[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{url}\"\n{keys}");
    (fleet, toml)
}

#[tokio::test]
async fn a_correctly_configured_engine_passes_every_check() {
    let adjust = |config: &mut MockConfig| config.loras = vec!["sql".to_owned()];
    let (_fleet, toml) = one(adjust, "models = [\"mock\"]\nadapters = [\"sql\"]\n").await;
    let report = passed(&toml).await;
    let checks = only_worker(&report);
    let names: Vec<_> = checks.iter().map(|check| check.check).collect();
    assert_eq!(
        names,
        [
            "reachable",
            "models",
            "tokenizer",
            "kv-events",
            "clock",
            "version"
        ]
    );
    assert_eq!(find(checks, "models").message, "serves `mock`; adapters: `sql`");
    assert!(
        find(checks, "kv-events").message.ends_with("replays"),
        "{checks:?}"
    );
    assert_eq!(find(checks, "version").message, "0.32.0");
}

#[tokio::test]
async fn a_worker_that_is_down_fails_one_check_and_the_others_are_checked_all_the_same() {
    let fleet = Fleet::start(2, |_, _| {}).await.unwrap();
    fleet.engines[0].faults().refuse_connections().await.unwrap();
    let report = live(&workers_toml(&fleet.engines)).await;
    let down = &report.pools[0].workers[0].checks;
    assert_eq!(down.len(), 1, "{down:?}");
    assert_eq!((down[0].check, down[0].result), ("reachable", CheckResult::Fail));
    assert_eq!(report.failed, 1);
    let up = &report.pools[0].workers[1].checks;
    assert!(up.iter().all(|check| check.result == CheckResult::Pass), "{up:?}");
}

#[tokio::test]
async fn a_model_or_adapter_that_is_not_served_fails() {
    for keys in [
        "models = [\"llama\"]\n",
        "models = [\"mock\"]\nadapters = [\"llama\"]\n",
    ] {
        let (_fleet, toml) = one(|_| {}, keys).await;
        let report = live(&toml).await;
        let models = find(only_worker(&report), "models");
        assert_eq!(models.result, CheckResult::Fail);
        assert_eq!(models.message, "does not serve `llama`; it serves `mock`");
        let tokenizer = find(only_worker(&report), "tokenizer");
        assert_eq!(tokenizer.result, CheckResult::Pass, "{tokenizer:?}");
    }
}

#[tokio::test]
async fn an_engine_without_events_is_warned_of_and_nothing_fails() {
    let (_fleet, toml) = one(|config| config.publish_events = false, "").await;
    let report = live(&toml).await;
    assert_eq!((report.warned, report.failed), (1, 0), "{report:#?}");
    let events = find(only_worker(&report), "kv-events");
    assert_eq!(events.result, CheckResult::Warn);
    assert!(
        events
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("--kv-events-config"))
    );
    let (_fleet, toml) = one(|config| config.publish_events = false, "kv-events = \"off\"\n").await;
    assert_eq!(live(&toml).await.warned, 0, "events are off");
}

#[tokio::test]
async fn a_publisher_that_is_not_there_fails_and_one_that_replays_nothing_is_warned_of() {
    let (fleet, toml) = one(|_| {}, "").await;
    // Bound for the time of the test, and no publisher.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().unwrap();
    let written = format!("{toml}kv-events = \"tcp://{silent}\"\n");
    let report = live(&written).await;
    assert_eq!(find(only_worker(&report), "kv-events").result, CheckResult::Fail);
    fleet.engines[0].faults().mute_publisher(true);
    let report = live(&toml).await;
    let events = find(only_worker(&report), "kv-events");
    assert_eq!(events.result, CheckResult::Warn, "{events:?}");
    assert!(
        events.message.contains("answers no request for a replay"),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_prefill_worker_whose_bootstrap_server_knows_its_engine_passes_and_without_the_server_it_fails() {
    let fleet = split(PdDialect::Mooncake).await;
    let toml = fleet.pool_toml("main", "");
    let report = live(&toml).await;
    assert_eq!(report.failed, 0, "{report:#?}");
    assert_eq!(report.pools[0].dialect, Some("mooncake-connector"));
    let connector = find(only_worker(&report), "connector");
    let id = &fleet.prefill[0].engine_ids()[0];
    assert!(connector.message.contains(id), "{connector:?}");
    fleet.prefill[0].faults().bootstrap_down(true).await.unwrap();
    let report = live(&toml).await;
    let connector = find(only_worker(&report), "connector");
    assert_eq!(connector.result, CheckResult::Fail, "{connector:?}");
    assert_eq!(report.failed, 1);
}

#[tokio::test]
async fn a_page_that_refuses_the_model_is_not_taken_for_a_missing_page() {
    let refusing = server(
        "HTTP/1.1 404 Not Found\r\ncontent-length: 55\r\nconnection: close\r\n\r\n\
         {\"error\": {\"message\": \"The model `a` does not exist.\"}}",
    )
    .await;
    let worker = format!(
        "[[pools.chat.workers]]\nurl = \"http://{refusing}\"\nmodels = [\"a\"]\nkv-events = \"off\"\n"
    );
    let report = live(&format!("[pools.chat.model-list]\npath = \"off\"\n{worker}")).await;
    let message = &find(only_worker(&report), "tokenizer").message;
    assert!(message.contains("The model `a` does not exist."), "{message}");
}

#[tokio::test]
async fn a_dialect_that_is_detected_is_shown_and_engines_without_a_connector_are_warned_of() {
    let fleet = split(PdDialect::Mooncake).await;
    let auto = fleet.detected_toml("main", "");
    let report = passed(&auto).await;
    let connector = find(only_worker(&report), "connector");
    assert!(connector.message.contains("mooncake-connector"), "{connector:?}");
    fleet.prefill[0].faults().bootstrap_down(true).await.unwrap();
    let report = live(&auto).await;
    let connector = find(only_worker(&report), "connector");
    assert_eq!(connector.result, CheckResult::Warn, "{connector:?}");
    assert!(connector.message.contains("not split"), "{connector:?}");
}

#[tokio::test]
async fn the_bootstrap_server_of_a_detected_dialect_is_checked_at_the_port_that_the_engine_names() {
    let fleet = split(PdDialect::Sglang).await;
    let auto = fleet.detected_toml("main", "");
    let report = passed(&auto).await;
    let connector = find(only_worker(&report), "connector");
    let address = fleet.prefill[0].bootstrap().unwrap();
    assert!(
        connector.message.contains("/server_info shows sglang"),
        "{connector:?}"
    );
    assert!(connector.message.contains(&address), "{connector:?}");
    fleet.prefill[0].faults().bootstrap_down(true).await.unwrap();
    let report = live(&auto).await;
    let connector = find(only_worker(&report), "connector");
    assert_eq!(connector.result, CheckResult::Fail, "{connector:?}");
}

#[tokio::test]
async fn a_named_dialect_is_checked_at_the_configured_port_and_the_engines_own_is_shown() {
    let fleet = split(PdDialect::Sglang).await;
    let named = fleet.pool_toml("main", "");
    passed(&named).await;
    let lines = named.lines().filter(|line| !line.starts_with("bootstrap"));
    let usual: String = lines.map(|line| format!("{line}\n")).collect();
    let report = live(&usual).await;
    let connector = find(only_worker(&report), "connector");
    let address = fleet.prefill[0].bootstrap().unwrap();
    assert!(connector.message.contains(":8998"), "{connector:?}");
    let hint = connector.hint.as_deref().unwrap_or_default();
    assert!(hint.contains(&address), "{connector:?}");
}

#[tokio::test]
async fn a_dialect_behind_a_key_is_warned_of_with_the_setting() {
    let address = server("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let worker =
        format!("url = \"http://{address}\"\nbootstrap = \"http://{address}\"\nrole = \"prefill\"\n");
    let decode = "[[pools.chat.workers]]\nurl = \"http://127.0.0.1:9\"\nrole = \"decode\"\n";
    let pool =
        format!("[pools.chat]\npd = {{ dialect = \"auto\" }}\n[[pools.chat.workers]]\n{worker}{decode}");
    let report = live(&pool).await;
    let connector = find(only_worker(&report), "connector");
    assert_eq!(connector.result, CheckResult::Warn, "{connector:?}");
    assert!(connector.message.contains("answers 401"), "{connector:?}");
    let hint = connector.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("authorization"), "{connector:?}");
}

#[tokio::test]
async fn workers_of_a_pool_that_serve_other_models_are_warned_of_unless_that_is_written_down() {
    let adjust = |number: usize, config: &mut MockConfig| config.model = format!("m{number}");
    let fleet = Fleet::start(2, adjust).await.unwrap();
    let toml = workers_toml(&fleet.engines);
    let report = live(&toml).await;
    let same = find(&report.pools[0].checks, "same-models");
    assert_eq!(same.result, CheckResult::Warn);
    assert_eq!(same.message, "the workers serve other models: m0 (w0); m1 (w1)");
    let named = toml.replace("name = \"w0\"", "name = \"w0\"\nmodels = [\"m0\"]");
    let named = named.replace("name = \"w1\"", "name = \"w1\"\nmodels = [\"m1\"]");
    assert_eq!(live(&named).await.pools[0].checks, []);
}

#[tokio::test]
async fn the_routers_tokenizer_is_compared_with_the_workers() {
    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, TOKENIZER).unwrap();
    let (_fleet, toml) = one(|_| {}, "").await;
    let report = live(&format!("[models.mock]\ntokenizer = {file:?}\n{toml}")).await;
    let tokenizer = find(only_worker(&report), "tokenizer");
    assert_eq!(tokenizer.result, CheckResult::Fail, "{tokenizer:?}");
    assert!(tokenizer.message.contains("from token 0 on"), "{tokenizer:?}");
}

#[tokio::test]
async fn a_model_is_checked_by_the_method_of_the_first_table_that_matches() {
    const UNUSED: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, UNUSED).unwrap();
    let (_fleet, toml) = one(|_| {}, "").await;
    let of = async |method: &str, pool: &str| {
        let rest = format!("[models.rest]\nnames = [\"*\"]\ntokenizer = {file:?}\n");
        let first = format!("[models.mock]\ntokenize = \"{method}\"\n{rest}");
        live(&format!("{first}[pools.chat]\ntokenize = \"{pool}\"\n{toml}")).await
    };
    let by_worker = of("worker", "off").await;
    let message = &find(only_worker(&by_worker), "tokenizer").message;
    assert!(message.starts_with("/tokenize makes"), "{message}");
    let not_at_all = of("off", "worker").await;
    let mut checks = only_worker(&not_at_all).iter();
    assert!(checks.all(|check| check.check != "tokenizer"), "{not_at_all:?}");
}

#[tokio::test]
async fn the_list_of_models_is_read_where_the_router_reads_it() {
    let refusing =
        server("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let worker = format!("[[pools.chat.workers]]\nurl = \"http://{refusing}\"\nkv-events = \"off\"\n");
    let off = live(&format!("[pools.chat.model-list]\npath = \"off\"\n{worker}")).await;
    assert_eq!(find(only_worker(&off), "models").result, CheckResult::Pass);
    let elsewhere = live(&format!("[pools.chat.model-list]\npath = \"/list\"\n{worker}")).await;
    assert_eq!(
        find(only_worker(&elsewhere), "models").message,
        "/list answers 401"
    );
}

#[tokio::test]
async fn keys_and_clusters_that_are_elsewhere_leave_the_rest_of_the_check() {
    let (_fleet, toml) = one(|_| {}, "").await;
    let text = format!(
        "[server]\nadmin-api-key = {{ env = \"CONDUCTOR_TEST_NOT_SET\" }}\n[discovery.more]\npool = \"chat\"\n\
         kubernetes = {{ service = \"vllm\", namespace = \"a\" }}\n\
         [discovery.other]\npool = \"chat\"\nfile-sd = \"/nowhere/targets.json\"\n{toml}"
    );
    let files = ConfigSource::Text(text);
    let (config, resources) = read_named(&files).unwrap();
    let (sources, workers) = query_sources(&config, &resources, &files).await;
    let names: Vec<_> = sources.iter().map(|source| &*source.source).collect();
    assert_eq!(names, ["more", "other"], "as in the file");
    let error = sources[0].error.as_deref().unwrap();
    assert!(error.contains("kubernetes.api-server"), "{error}");
    assert!(workers.is_empty());
    let report = check_all(&pool_targets(&config, &resources), || ()).await;
    assert_eq!(report.failed, 0, "{report:#?}");
}

/// Starts a server with the same reply to every request.
async fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    crate::tasks::spawn("test-server", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            drop(stream.read(&mut head).await);
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    address
}

#[tokio::test]
async fn a_clock_that_is_far_off_is_warned_of() {
    let answer = "HTTP/1.1 200 OK\r\ndate: Wed, 01 Jan 2020 00:00:00 GMT\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let address = server(answer).await;
    let report = live(&format!("[[pools.chat.workers]]\nurl = \"http://{address}\"\n")).await;
    let clock = find(only_worker(&report), "clock");
    assert_eq!(clock.result, CheckResult::Warn);
    assert!(clock.message.contains("s behind this machine's"), "{clock:?}");
}

#[tokio::test]
async fn an_invalid_reply_is_reported_and_shown_without_its_control_characters() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"data\": \"\u{1b}[2J\"";
    let address = server(answer).await;
    let report = live(&format!("[[pools.chat.workers]]\nurl = \"http://{address}\"\n")).await;
    assert_eq!(find(only_worker(&report), "models").result, CheckResult::Fail);
    let text = render(&report, Glyphs::Unicode, conductor_config::Paint::Plain);
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[tokio::test]
async fn a_worker_that_refuses_the_key_is_reported_with_the_setting() {
    let address = server("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let report = live(&format!("[[pools.chat.workers]]\nurl = \"http://{address}\"\n")).await;
    let models = find(only_worker(&report), "models");
    assert_eq!(models.result, CheckResult::Fail);
    assert!(
        models
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("authorization"))
    );
}
