//! While a compiler does not come to an end, everything goes through that needs nothing of it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admin_pages::control::{
    PolicyAction, PolicyChange, RefusedPolicyChange, ReloadCommand, ReloadOutcome, Status,
};
use policy_runtime::child::ChildError;
use policy_runtime::{LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use routing::hex;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::App;
use local_files::ConfigSource;
use policy_store::builtin;
use policy_store::{Loader, PolicyReport};
use runtime_overrides::{Addition, InstanceChange};
use runtime_overrides::{RouteAction, RouteChange};

const FIRST: &str = "round-robin";
const SECOND: &str = "load-weighted";
/// The compiler does not come to an end with this one until it is let.
const HELD: &str = "cache-aware";

fn text(head: &str, policy: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin-listen = "127.0.0.1:0"
[policies.tuned]
path = "tuned.wasm"
{head}
[[pools.chat.workers]]
name = "w0"
url = "http://127.0.0.1:10"
kv-events = "off"
[[routes]]
pool = "chat"
policy = "{policy}"
"#
    )
}

fn bytes(builtin: &str) -> &'static [u8] {
    builtin::find(builtin).unwrap().bytes
}

#[derive(Debug)]
struct Held {
    engine: PolicyEngine,
    begun: SyncSender<()>,
    /// An error ends the compilation with it.
    go: Mutex<Receiver<Option<LoadError>>>,
}

impl Loader for Held {
    fn load(
        &self,
        name: &str,
        component: &[u8],
        settings: &PolicySettings,
        state: Arc<PolicyState>,
    ) -> Result<WasmPolicy, LoadError> {
        if component == bytes(HELD) {
            self.begun.send(()).unwrap();
            if let Some(error) = self.go.lock().unwrap().recv().unwrap() {
                return Err(error);
            }
        }
        self.engine.load(name, component, settings, state)
    }
}

/// A router with two versions of `tuned`, whose reload thread runs.
struct Scenario {
    folder: TempDir,
    commands: SyncSender<ReloadCommand>,
    status: Status,
    begun: Receiver<()>,
    go: SyncSender<Option<LoadError>>,
    _running: DropGuard,
}

impl Scenario {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tuned = folder.path().join("tuned.wasm");
        fs::write(&tuned, bytes(FIRST)).unwrap();
        let file = folder.path().join("conductor.toml");
        fs::write(&file, text("", "tuned")).unwrap();
        let app = App::build(ConfigSource::File(file)).await.unwrap();
        let stop = CancellationToken::new();
        let (mut reloader, _) = app.into_reloader(stop.clone());
        fs::write(&tuned, bytes(SECOND)).unwrap();
        let reload = move || {
            assert!(reloader.reload().0.has_changes());
            reloader
        };
        let mut reloader = tokio::task::spawn_blocking(reload).await.unwrap();
        let ((begun, has_begun), (go, goes)) = (sync_channel(1), sync_channel(1));
        reloader.library.load_with(Arc::new(Held {
            engine: reloader.library.engine().clone(),
            begun,
            go: Mutex::new(goes),
        }));
        let status = reloader.status.clone();
        // Only commands start rounds: the thread never finds by itself what a test has just written.
        let (commands, _) = reloader.spawn_unwatched(stop.clone()).unwrap();
        let scenario = Self {
            folder,
            commands,
            status,
            begun: has_begun,
            go,
            _running: stop.drop_guard(),
        };
        // After it, no round of the start is to come.
        let started = scenario.send(ReloadCommand::Reload).await.unwrap();
        assert!(!started.outcome.has_changes(), "{:?}", started.outcome);
        scenario
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(file), bytes).unwrap();
    }

    fn send<T>(&self, commands: impl FnOnce(oneshot::Sender<T>) -> ReloadCommand) -> oneshot::Receiver<T> {
        let (to, answer) = oneshot::channel();
        self.commands.send(commands(to)).unwrap();
        answer
    }

    /// Waits until the compiler has the policy that it does not come to an end with.
    fn is_compiling(&self) {
        self.commands.send(ReloadCommand::Changed).unwrap();
        tokio::task::block_in_place(|| self.begun.recv().unwrap());
    }

    /// Lets the compiler finish.
    fn finish(&self) {
        self.go.send(None).unwrap();
    }

    /// Ends the compiler as the system does without memory.
    fn kill(&self) {
        let killed = ChildError::Died {
            status: ExitStatus::from_raw(9),
            words: String::new(),
        };
        self.go.send(Some(LoadError::Compiler(killed))).unwrap();
    }

    async fn add_instance(&self, url: &str) {
        let add = InstanceChange::Add(Addition {
            url: url.to_owned(),
            name: None,
            role: routing::Role::Mixed,
            pool: None,
            bootstrap: None,
        });
        let answer = self.send(|to| ReloadCommand::Instance(add, to)).await.unwrap();
        answer.unwrap();
    }

    fn change(&self, action: PolicyAction) -> oneshot::Receiver<Result<PolicyReport, RefusedPolicyChange>> {
        let policy = "tuned".to_owned();
        self.send(|to| ReloadCommand::Policy(PolicyChange { policy, action }, to))
    }

    /// Returns true if these bytes of `tuned` are active.
    fn has(&self, builtin: &str) -> bool {
        let digest = hex(&Sha256::digest(bytes(builtin)));
        let policies = self.status.policies().policies;
        let tuned = policies.iter().find(|policy| policy.name == "tuned").unwrap();
        tuned.sha256.as_deref() == Some(&*digest)
    }

    fn generation(&self) -> u64 {
        self.status.config().generation
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollbacks_edits_and_instances_go_through_while_a_policy_is_compiled() {
    let scenario = Scenario::begin().await;
    scenario.write("tuned.wasm", bytes(HELD));
    scenario.is_compiling();

    scenario.change(PolicyAction::RollBack).await.unwrap().unwrap();
    assert!(scenario.has(FIRST));

    scenario.write("conductor.toml", text("[tokens]\ncache = \"1MiB\"", "tuned"));
    let answer = scenario.send(ReloadCommand::Reload).await.unwrap();
    assert_eq!(answer.outcome.as_str(), "applied");
    assert!(answer.outcome.has_changes() && answer.outcome.swapped().is_empty());

    scenario.add_instance("http://127.0.0.1:30").await;
    let policies = scenario.status.policies().policies;
    assert!(
        policies
            .iter()
            .any(|policy| policy.name == "tuned" && policy.compiling)
    );

    // A query about the new bytes is answered once the result is known, and blocks no other client until then.
    let mut reloaded = scenario.send(ReloadCommand::Reload);
    scenario.add_instance("http://127.0.0.1:31").await;
    assert!(reloaded.try_recv().is_err());
    scenario.finish();
    let answer = reloaded.await.unwrap();
    assert_eq!(answer.outcome.swapped(), ["tuned"]);
    assert!(scenario.has(HELD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_names_a_policy_which_is_compiled_waits_as_a_whole_and_alone() {
    let scenario = Scenario::begin().await;
    scenario.write("other.wasm", bytes(HELD));
    let edited = text("[policies.other]\npath = \"other.wasm\"", "other");
    scenario.write("conductor.toml", edited);
    scenario.is_compiling();
    let mut reloaded = scenario.send(ReloadCommand::Reload);
    let before = scenario.generation();
    scenario.change(PolicyAction::RollBack).await.unwrap().unwrap();
    assert!(scenario.has(FIRST));
    assert!(reloaded.try_recv().is_err());
    assert_eq!(scenario.generation(), before + 1, "the rollback alone");
    scenario.finish();
    let answer = reloaded.await.unwrap();
    assert_eq!(answer.outcome.as_str(), "applied");
    assert_eq!(answer.outcome.swapped(), ["other"]);

    // The next bytes of that file are a new version like any other.
    scenario.write("other.wasm", bytes(SECOND));
    let answer = scenario.send(ReloadCommand::Reload).await.unwrap();
    assert_eq!(answer.outcome.swapped(), ["other"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_is_given_a_policy_which_is_compiled_is_answered_when_it_is_there() {
    let scenario = Scenario::begin().await;
    scenario.write(
        "conductor.toml",
        format!("policy-dir = \"folder\"\n{}", text("", "tuned")),
    );
    fs::create_dir(scenario.folder.path().join("folder")).unwrap();
    assert!(
        scenario
            .send(ReloadCommand::Reload)
            .await
            .unwrap()
            .outcome
            .has_changes()
    );
    scenario.write("folder/fresh.wasm", bytes(HELD));
    scenario.is_compiling();
    let change = RouteChange {
        policy: "fresh".to_owned(),
        route: None,
        action: RouteAction::Canary(1_000),
    };
    let mut changed = scenario.send(|to| ReloadCommand::Route(change, to));
    scenario.change(PolicyAction::RollBack).await.unwrap().unwrap();
    assert!(changed.try_recv().is_err());
    scenario.finish();
    changed.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumption_is_answered_when_the_bytes_of_the_file_are_there() {
    let scenario = Scenario::begin().await;
    scenario.change(PolicyAction::RollBack).await.unwrap().unwrap();
    assert!(scenario.has(FIRST));
    scenario.write("tuned.wasm", bytes(HELD));
    scenario.is_compiling();
    let mut resumed = scenario.change(PolicyAction::Resume);
    scenario.add_instance("http://127.0.0.1:30").await;
    assert!(resumed.try_recv().is_err());
    scenario.finish();
    let report = resumed.await.unwrap().unwrap();
    assert_eq!(report.problem, None);
    assert!(scenario.has(HELD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_reload_compiles_once_more_what_a_killed_compiler_did_not() {
    let scenario = Scenario::begin().await;
    scenario.write("other.wasm", bytes(HELD));
    let edited = text("[policies.other]\npath = \"other.wasm\"", "other");
    scenario.write("conductor.toml", edited);
    scenario.is_compiling();
    scenario.kill();
    while scenario.status.config().problems.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Each request is answered with the result of its own attempt.
    for _ in 0..2 {
        let reloaded = scenario.send(ReloadCommand::Reload);
        tokio::task::block_in_place(|| scenario.begun.recv().unwrap());
        scenario.kill();
        let answer = reloaded.await.unwrap();
        let ReloadOutcome::Refused { problems, .. } = answer.outcome else {
            panic!("{:?}", answer.outcome)
        };
        let help = problems[0].help.as_deref().unwrap_or_default();
        assert!(help.contains("`conductor reload`"), "{help}");
    }
    let reloaded = scenario.send(ReloadCommand::Reload);
    scenario.finish();
    assert_eq!(reloaded.await.unwrap().outcome.swapped(), ["other"]);
}
