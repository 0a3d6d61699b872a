//! Policies that are loaded behind the reloads, by a compiler that a test holds.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use policy_runtime::child::ChildError;
use policy_runtime::{EngineLimits, LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use sha2::{Digest as _, Sha256};

use super::*;

/// Compiler that reports its jobs, and starts when the test allows it.
#[derive(Debug)]
struct Held {
    engine: PolicyEngine,
    begun: SyncSender<Digest>,
    /// An error ends the compilation with it.
    go: Mutex<Receiver<Option<LoadError>>>,
}

impl Loader for Held {
    fn load(
        &self,
        name: &str,
        bytes: &[u8],
        settings: &PolicySettings,
        state: Arc<PolicyState>,
    ) -> Result<WasmPolicy, LoadError> {
        self.begun.send(Sha256::digest(bytes).into()).unwrap();
        match self.go.lock().unwrap().recv().unwrap() {
            Some(error) => Err(error),
            None => self.engine.load(name, bytes, settings, state),
        }
    }
}

/// Library whose policies are loaded when the test allows it.
struct Scenario {
    library: PolicyLibrary,
    begun: Receiver<Digest>,
    go: SyncSender<Option<LoadError>>,
    loaded: Receiver<()>,
    started: Instant,
}

const A: &str = "round-robin";
const B: &str = "load-weighted";
const C: &str = "cache-aware";
const D: &str = "pd-pairing";

impl Scenario {
    fn begin() -> Self {
        let limits = EngineLimits {
            instances_per_policy: 2,
            instances: 16,
            memory_bytes: 32 << 20,
        };
        let engine = PolicyEngine::new(limits).unwrap();
        let ((begun, has_begun), (go, goes)) = (sync_channel(64), sync_channel(64));
        let held = Held {
            engine: engine.clone(),
            begun,
            go: Mutex::new(goes),
        };
        let mut library = PolicyLibrary::new(engine, Arc::default());
        // The policies of the start are loaded while the router starts.
        let prepared = library.prepare(vec![wanted("p", A)]);
        library.commit(prepared);
        let (sender, loaded) = sync_channel(64);
        library.loader = Arc::new(held);
        library.load_behind(move || _ = sender.send(())).unwrap();
        Self {
            library,
            begun: has_begun,
            go,
            loaded,
            started: Instant::now(),
        }
    }

    /// Looks at the files. Returns the policies with a new version, and those that are being loaded.
    fn look(&mut self, wanted: Vec<WantedPolicy>) -> (Vec<String>, Vec<String>) {
        self.look_after(0, wanted)
    }

    /// Looks at the files as if that many seconds had passed since the start.
    fn look_after(&mut self, seconds: u64, wanted: Vec<WantedPolicy>) -> (Vec<String>, Vec<String>) {
        self.library
            .begin_look_at(self.started + Duration::from_secs(seconds));
        let prepared = self.library.prepare(wanted);
        let loading = prepared.loading().map(|policy| policy.wanted.name.clone());
        let loading = loading.collect();
        let swapped = self.library.commit(prepared).swapped.into_iter();
        (swapped.map(|swapped| swapped.policy).collect(), loading)
    }

    #[track_caller]
    fn begins(&self, builtin: &str) {
        assert_eq!(self.begun.recv().unwrap(), digest(builtin), "{builtin}");
    }

    /// Lets the compiler do what it began.
    fn finish(&self) {
        self.go.send(None).unwrap();
        self.loaded.recv().unwrap();
    }

    /// Ends the compiler's process.
    fn fail(&self, error: ChildError) {
        self.go.send(Some(LoadError::Compiler(error))).unwrap();
        self.loaded.recv().unwrap();
    }

    #[track_caller]
    fn in_force(&self, policy: &str, builtin: &str) {
        assert_eq!(
            self.library.entries[policy].chain[0].digest,
            digest(builtin),
            "{builtin}"
        );
    }
}

fn wanted(name: &str, builtin: &str) -> WantedPolicy {
    WantedPolicy::of_builtin(name, builtin)
}

fn digest(builtin: &str) -> Digest {
    component::read(&wanted("p", builtin).source).unwrap().digest()
}

fn none() -> Vec<String> {
    Vec::new()
}

fn only(policy: &str) -> Vec<String> {
    vec![policy.to_owned()]
}

#[test]
fn while_a_policy_is_compiled_the_version_before_decides_and_can_be_rolled_back() {
    let mut scenario = Scenario::begin();
    assert_eq!(scenario.look(vec![wanted("p", B)]), (none(), only("p")));
    scenario.begins(B);
    scenario.finish();
    assert_eq!(scenario.look(vec![wanted("p", B)]), (only("p"), none()));
    assert_eq!(scenario.look(vec![wanted("p", C)]), (none(), only("p")));
    scenario.begins(C);
    for _ in 0..3 {
        assert_eq!(
            scenario.look(vec![wanted("p", C)]),
            (none(), only("p")),
            "ordered once"
        );
        scenario.in_force("p", B);
    }
    assert!(scenario.library.is_loading("p"));
    scenario.library.roll_back("p").unwrap();
    scenario.in_force("p", A);
    scenario.finish();
    assert_eq!(scenario.look(vec![wanted("p", C)]), (only("p"), none()));
    scenario.in_force("p", C);
    assert!(!scenario.library.is_loading("p"));
    assert!(scenario.begun.try_recv().is_err(), "nothing else was compiled");
}

#[test]
fn of_the_files_that_wait_under_one_name_only_the_newest_is_compiled() {
    let mut scenario = Scenario::begin();
    let of_q = |builtin| vec![wanted("p", A), wanted("q", builtin)];
    scenario.look(vec![wanted("p", B)]);
    scenario.begins(B);
    for builtin in [B, C, D] {
        let wanted = vec![wanted("p", B), wanted("q", builtin)];
        assert_eq!(scenario.look(wanted).0, none());
    }
    scenario.finish();
    scenario.begins(D);
    scenario.finish();
    assert_eq!(scenario.look(of_q(D)), (only("q"), none()));
    scenario.in_force("q", D);
    assert!(scenario.begun.try_recv().is_err());
}

#[test]
fn bytes_that_are_no_longer_wanted_do_not_come_into_force() {
    let mut scenario = Scenario::begin();
    scenario.look(vec![wanted("p", B)]);
    scenario.begins(B);
    assert_eq!(scenario.look(vec![wanted("p", A)]), (none(), none()), "put back");
    scenario.finish();
    assert_eq!(scenario.look(vec![wanted("p", A)]), (none(), none()));
    scenario.in_force("p", A);
}

#[test]
fn versions_loaded_for_a_configuration_are_kept_until_all_are_loaded() {
    let mut scenario = Scenario::begin();
    let next = || vec![wanted("p", A), wanted("q", B), wanted("r", C)];
    // A reload prepares the next configuration, and commits the one that is active.
    let look = |scenario: &mut Scenario| {
        scenario.library.begin_look();
        let prepared = scenario.library.prepare(next());
        let is_loading = prepared.loading().next().is_some();
        let active = scenario.library.prepare(vec![wanted("p", A)]);
        scenario.library.commit(active);
        is_loading.then_some(()).map_or(Some(prepared), |()| None)
    };
    assert!(look(&mut scenario).is_none());
    for builtin in [B, C] {
        scenario.begins(builtin);
        assert!(look(&mut scenario).is_none());
        scenario.finish();
        if builtin == B {
            assert!(look(&mut scenario).is_none(), "{C} is not there");
            look(&mut scenario);
        }
    }
    let prepared = look(&mut scenario).expect("all of it is there");
    scenario.library.commit(prepared);
    scenario.in_force("q", B);
    scenario.in_force("r", C);
    assert!(scenario.begun.try_recv().is_err(), "each was compiled once");
    let memory = scenario.library.memory.of("q");
    assert!(Arc::ptr_eq(&memory, &scenario.library.memory.of("q")));
}

#[test]
fn a_policy_that_cannot_be_loaded_is_a_problem_once_and_the_version_before_goes_on() {
    let mut scenario = Scenario::begin();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.wasm");
    std::fs::write(&file, b"\0asm\x0d\0\x01\0 and then nothing good").unwrap();
    // Old enough not to be half-written.
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let mut bad = wanted("p", A);
    scenario.library.entries.get_mut("p").unwrap().wanted.source = PolicySource::File(file.clone());
    bad.source = PolicySource::File(file);
    assert_eq!(scenario.look(vec![bad.clone()]), (none(), only("p")));
    scenario.begun.recv().unwrap();
    scenario.finish();
    for _ in 0..3 {
        assert_eq!(scenario.look(vec![bad.clone()]), (none(), none()));
        scenario.in_force("p", A);
        assert!(scenario.library.entries["p"].problem.is_some());
    }
    assert!(scenario.begun.try_recv().is_err(), "it was tried once");
}

/// Returns the errors of compiler processes, each with whether the machine may be at fault.
fn failures() -> [(ChildError, bool); 4] {
    let killed = ChildError::Died {
        status: ExitStatus::from_raw(9),
        words: String::new(),
    };
    let not_started = ChildError::Start {
        program: "conductor".into(),
        source: io::ErrorKind::OutOfMemory.into(),
    };
    let (most, seconds) = (1 << 30, Duration::from_secs(1));
    [
        (killed, true),
        (not_started, true),
        (ChildError::Time { most: seconds }, true),
        (ChildError::Memory { most }, false),
    ]
}

#[test]
fn a_compiler_that_the_machine_ended_is_started_again_after_a_pause() {
    for (error, is_of_machine) in failures() {
        let mut scenario = Scenario::begin();
        let problem = error.to_string();
        scenario.look(vec![wanted("p", B)]);
        scenario.begins(B);
        scenario.fail(error);
        // The first look finds the failure.
        for seconds in [0, 1, 29] {
            let seen = scenario.look_after(seconds, vec![wanted("p", B)]);
            assert_eq!(seen, (none(), none()), "{problem}, after {seconds} s");
        }
        scenario.in_force("p", A);
        let loading = if is_of_machine { only("p") } else { none() };
        // The pause is longer where the failure took more than three seconds.
        let seen = scenario.look_after(86_400, vec![wanted("p", B)]);
        assert_eq!(seen, (none(), loading), "{problem}");
        if is_of_machine {
            scenario.begins(B);
            assert!(
                scenario.library.entries["p"].problem.is_some(),
                "until it is done"
            );
            scenario.finish();
            assert_eq!(scenario.look(vec![wanted("p", B)]), (only("p"), none()));
            assert_eq!(scenario.library.entries["p"].problem, None);
        }
    }
}

#[test]
fn each_failure_of_a_compiler_is_tried_again_at_a_request_and_other_faults_are_not() {
    for (error, _) in failures() {
        let mut scenario = Scenario::begin();
        scenario.look(vec![wanted("p", B)]);
        scenario.begins(B);
        scenario.fail(error);
        scenario.look(vec![wanted("p", B)]);
        scenario.library.retry_compilers();
        assert_eq!(scenario.look(vec![wanted("p", B)]), (none(), only("p")));
        scenario.begins(B);
        scenario.go.send(Some(LoadError::Text)).unwrap();
        scenario.loaded.recv().unwrap();
        for _ in 0..2 {
            assert_eq!(scenario.look(vec![wanted("p", B)]), (none(), none()));
            scenario.library.retry_compilers();
        }
        assert!(scenario.begun.try_recv().is_err());
    }
}

#[test]
fn the_pause_after_a_failed_compiler_is_30_s_and_grows_with_its_duration() {
    for (took, pause) in [(0, 30), (3, 30), (300, 3_000)] {
        let mut attempts = LoadAttempts::default();
        let order = LoadOrder {
            policy: "p".to_owned(),
            digest: digest(B),
            settings: PolicySettings::default(),
        };
        let took = Duration::from_secs(took);
        let late = ChildError::Time { most: took };
        let ended = Instant::now();
        let failed = LoadFinished {
            order,
            bytes: None,
            result: Err(Arc::new(PolicyProblem::Load(LoadError::Compiler(late)))),
            took,
        };
        attempts.add(failed, ended);
        let mut is_kept_after = |seconds| {
            // Looks use it.
            attempts.outcome(&wanted("p", B), &digest(B));
            attempts.sweep(ended + Duration::from_secs(seconds));
            attempts.has("p")
        };
        assert!(is_kept_after(pause - 1), "{took:?}");
        assert!(!is_kept_after(pause), "{took:?}");
    }
}
