//! Every step of a plan fails in turn, and nothing that serves has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use admin_pages::control::{
    PlanStep, PolicyAction, PolicyChange, RefusedChange, RefusedPolicyChange, ReloadOutcome,
};
use harness::Client;
use routing::Generation;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::app::App;
use local_files::ConfigSource;
use runtime_overrides::{Addition, InstanceChange};

mod agreed;
mod apart;
mod discovery;
mod fleet_store;
mod listeners;
mod lost;
mod resources;
mod settling;
mod staged;
mod trials;
mod undecided;

const FIRST: &str = r#"
[server]
listen = "127.0.0.1:0"
admin-listen = "127.0.0.1:0"

[policies.tuned]
builtin = "cache-aware"
params = { backlog-price = 0.5 }

[clients.old]
key = { file = "old.key" }

"#;

/// Returns a fleet of workers that do not answer. Their feeds are configured, so that discovery has no targets.
fn workers(names: &[&str]) -> String {
    let worker = |name: &&str| {
        format!(
            "[[pools.chat.workers]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9\"\nkv-events = \"tcp://127.0.0.1:9\"\n"
        )
    };
    // Each at a place of its own.
    let all: Vec<String> = names.iter().map(worker).collect();
    let numbered = all.iter().zip(10..);
    numbered
        .map(|(worker, port)| worker.replace(":9\"", &format!(":{port}\"")))
        .collect()
}

fn before() -> String {
    let routes = "[[routes]]\npool = \"chat\"\npolicy = \"tuned\"\n";
    format!("{FIRST}{}{routes}", workers(&["w0", "w1"]))
}

/// Returns other workers, policies, clients, limits, pools, routes, files and sockets.
fn after() -> String {
    format!(
        r#"
[server]
listen = "127.0.0.2:0"
admin-listen = "127.0.0.1:0"
admin-api-key = {{ file = "new.key" }}
[log]
level = "debug"
[tokens]
cache = "1MiB"
[record]
file = "decisions.jsonl"
explain = 3
[policies.tuned]
builtin = "cache-aware"
params = {{ backlog-price = 0.7 }}
[policies.mixed]
pipeline = {{ scorers = [{{ policy = "tier-weight", weight = 1 }}, {{ feature = "load.requests", weight = -1 }}] }}
[clients.new]
key = {{ file = "new.key" }}
[pools.chat]
queue-limit = 7
[pools.chat.health]
failures = 7
{}
[[pools.other.workers]]
name = "o0"
url = "http://127.0.0.1:20"
kv-events = "off"
[[routes]]
match = {{ model = "other" }}
pool = "other"
policy = "mixed"
[[routes]]
pool = "chat"
policy = "tuned"
"#,
        workers(&["w0", "w2"])
    )
}

/// A router whose reloads the test runs itself.
struct Scenario {
    folder: TempDir,
    reloader: Box<Reloader>,
    admin: Client,
    _serving: DropGuard,
}

impl Scenario {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for key in ["old", "new"] {
            fs::write(folder.path().join(format!("{key}.key")), key).unwrap();
        }
        let file = folder.path().join("conductor.toml");
        fs::write(&file, before()).unwrap();
        let app = App::build(ConfigSource::File(file)).await.unwrap();
        let stop = CancellationToken::new();
        let (reloader, admin) = app.into_reloader(stop.clone());
        Self {
            folder,
            reloader: Box::new(reloader),
            admin: Client::new(format!("http://{admin}")),
            _serving: stop.drop_guard(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Works on the reloader off the runtime's threads, as the reload thread does.
    async fn run<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Reloader) -> T + Send + 'static,
    ) -> (Self, T) {
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&mut self.reloader);
            (self, done)
        });
        done.await.unwrap()
    }

    async fn reload(self, fault: Option<PlanStep>) -> (Self, ReloadOutcome) {
        let reload = move |reloader: &mut Reloader| {
            reloader.steps.fault = fault;
            reloader.reload().0
        };
        self.run(reload).await
    }

    /// Returns the state of every part that serves, by name.
    async fn state(&self) -> BTreeMap<&'static str, String> {
        let live = &self.reloader.live;
        let mut status = self.page("/status").await;
        // A refused edit changes only whether the newest file is valid.
        status["config"] = Value::Null;
        let metrics = self.admin.get("/metrics").await.unwrap().text();
        // As are the counts of reloads, the process and its runtime.
        // The test's own connections to the admin pages are counted as well.
        let moving = [
            "conductor_changes",
            "conductor_config_",
            "conductor_memory_resident",
            "conductor_edge_connections",
            "conductor_runtime_",
            "process_",
        ];
        let stays = |line: &&str| !moving.iter().any(|name| line.contains(name));
        let lines = metrics.lines().filter(stays);
        BTreeMap::from([
            ("status", status.to_string()),
            ("feeds", self.page("/admin/feeds").await.to_string()),
            ("policies", self.page("/admin/policies").await.to_string()),
            ("metrics", lines.collect::<Vec<_>>().join("\n")),
            // Health rules of live workers, limits of the cache of tokens, queues, clients, arms, and every label.
            (
                "snapshot",
                without_connections(&format!("{:?}", live.cell.load())),
            ),
            ("discovery", format!("{:?}", live.discovery)),
            ("recorder", format!("{:?}", live.recorder)),
            ("admin key", format!("{:?}", live.admin_key)),
            ("record file", self.path("decisions.jsonl").exists().to_string()),
        ])
    }

    async fn page(&self, path: &str) -> Value {
        // The first key that the file names, once it is applied.
        let headers = [("x-api-key", "new")];
        let page = self
            .admin
            .stream(http::Method::GET, path, &headers, bytes::Bytes::new());
        let mut page = page.await.unwrap().whole().await.unwrap().json().unwrap();
        forget_times(&mut page);
        page
    }

    #[track_caller]
    fn is_unchanged(
        before: &BTreeMap<&'static str, String>,
        now: &BTreeMap<&'static str, String>,
        step: PlanStep,
    ) {
        for (part, was) in before {
            let is = &now[part];
            let differs = was.bytes().zip(is.bytes()).position(|(was, is)| was != is);
            let differs = differs.unwrap_or(was.len().min(is.len()));
            let around =
                |text: &str| -> String { text.chars().skip(differs.saturating_sub(200)).take(400).collect() };
            assert!(
                was == is,
                "{part} has changed, though the plan failed at `{}`:\n{}\n--- was ---\n{}",
                step.as_str(),
                around(is),
                around(was)
            );
        }
    }
}

/// Takes out how many connections came: the test makes some itself.
fn without_connections(snapshot: &str) -> String {
    let mut parts = snapshot.split("ProtocolLabel {");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (label, count) = part.split_once("value: ").unwrap_or((part, ""));
        text + label + count.trim_start_matches(|digit: char| digit.is_ascii_digit())
    })
}

/// Takes out how long something lasts, and the process' memory: they change whether a plan fails or not.
fn forget_times(page: &mut Value) {
    match page {
        Value::Object(members) => {
            members.retain(|name, _| !name.ends_with("_s") && name != "resident_bytes");
            members.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// Steps that a change of something else than the text goes through.
fn later_steps() -> impl Iterator<Item = PlanStep> {
    let all = PlanStep::ALL.iter().copied();
    all.skip_while(|step| *step != PlanStep::LogLevel)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_edit_that_fails_at_any_step_changes_nothing() {
    let mut scenario = Scenario::begin().await;
    let active = scenario.state().await;
    fs::write(scenario.path("conductor.toml"), after()).unwrap();
    for &step in PlanStep::ALL {
        let outcome;
        (scenario, outcome) = scenario.reload(Some(step)).await;
        assert!(
            matches!(&outcome, ReloadOutcome::Refused { step: at, .. } if *at == step),
            "{step:?}: {outcome:?}"
        );
        Scenario::is_unchanged(&active, &scenario.state().await, step);
        assert_eq!(scenario.reloader.active.text, before());
    }

    let outcome;
    (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    let now = scenario.state().await;
    for (part, was) in &active {
        // Written by a thread of its own, which has to find its order first.
        if *part != "record file" {
            assert_ne!(was, &now[part], "{part} shows nothing of an edit that is applied");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_key_that_fails_at_any_step_is_not_taken() {
    let mut scenario = Scenario::begin().await;
    let active = scenario.state().await;
    fs::write(scenario.path("old.key"), "another").unwrap();
    let steps = PlanStep::ALL.iter().copied();
    // The key is taken although the file cannot be read.
    let not_run = [PlanStep::ReadFile, PlanStep::Parse, PlanStep::LoadPolicies];
    for step in steps.filter(|step| !not_run.contains(step)) {
        let outcome;
        (scenario, outcome) = scenario.reload(Some(step)).await;
        assert!(
            matches!(outcome, ReloadOutcome::Refused { .. }),
            "{step:?}: {outcome:?}"
        );
        Scenario::is_unchanged(&active, &scenario.state().await, step);
    }
    let (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_ne!(active["snapshot"], scenario.state().await["snapshot"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_instance_that_fails_at_any_step_is_not_added() {
    let mut scenario = Scenario::begin().await;
    let active = scenario.state().await;
    let change = || {
        InstanceChange::Add(Addition {
            url: "http://127.0.0.1:30".to_owned(),
            name: None,
            role: routing::Role::Mixed,
            pool: None,
            bootstrap: None,
        })
    };
    for step in later_steps() {
        let add = move |reloader: &mut Reloader| {
            reloader.steps.fault = Some(step);
            reloader.change_instance(&change())
        };
        let refused;
        (scenario, refused) = scenario.run(add).await;
        assert!(
            matches!(refused, Err(RefusedChange::Config(_))),
            "{step:?}: {refused:?}"
        );
        Scenario::is_unchanged(&active, &scenario.state().await, step);
    }
    let add = move |reloader: &mut Reloader| {
        reloader.steps.fault = None;
        reloader.change_instance(&change())
    };
    let (scenario, added) = scenario.run(add).await;
    assert_eq!(added.unwrap().generation, Generation(2));
    assert_ne!(active["status"], scenario.state().await["status"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_fails_at_any_step_is_neither_rolled_back_nor_resumed() {
    let scenario = Scenario::begin().await;
    let tuned = before().replace("backlog-price = 0.5", "backlog-price = 0.6");
    fs::write(scenario.path("conductor.toml"), tuned).unwrap();
    let (mut scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    for action in [PolicyAction::RollBack, PolicyAction::Resume] {
        let act = move |fault: Option<PlanStep>| {
            move |reloader: &mut Reloader| {
                reloader.steps.fault = fault;
                let policy = "tuned".to_owned();
                reloader.change_policy(&PolicyChange { policy, action })
            }
        };
        let active = scenario.state().await;
        for step in later_steps() {
            let refused;
            (scenario, refused) = scenario.run(act(Some(step))).await;
            assert!(
                matches!(refused, Err(RefusedPolicyChange::Plan(_))),
                "{step:?}: {refused:?}"
            );
            (scenario, ()) = scenario.run(|reloader| reloader.report_policies()).await;
            Scenario::is_unchanged(&active, &scenario.state().await, step);
        }
        let done;
        (scenario, done) = scenario.run(act(None)).await;
        done.unwrap();
        assert_ne!(
            active["policies"],
            scenario.state().await["policies"],
            "{action:?}"
        );
    }
}

#[test]
fn every_file_of_the_scenario_is_valid() {
    for text in [before(), after()] {
        let source = ConfigSource::File(Path::new("/nowhere/conductor.toml").to_owned());
        if let Err(mistakes) = read(&source, &text) {
            panic!("{}", mistakes.render(conductor_config::Paint::Plain));
        }
    }
}
