//! The same small scheduler, written in each language of `policy-sdk/templates`, keeps the same promises.
//!
//! Tests of every component of `tests/languages`. Where `CONDUCTOR_LANGUAGES` names a folder, those in it are called
//! too: the opt-in job `.ci/run languages` puts there the components that every language's own toolchain has just
//! built.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use policy_runtime::{EngineLimits, LoadError, PolicyEngine, PolicySettings, WasmPolicy};
use routing::{
    Choice, DecisionInput, DecisionQueries, Hold, Policy, PolicyDescription, PolicyFault, RequestFacts,
    Verdict, WorkerId,
};

use crate::components::Answers;

/// A component above this is an interpreter with a script in it, and gets the memory that
/// interpreters need by `policy-sdk/templates/README.md`.
const INTERPRETER_BYTES: usize = 100 << 10;
/// An interpreter is made of dozens of modules, and every thread that decides has an instance of its own.
const ROOM: EngineLimits = EngineLimits {
    instances_per_policy: 8,
    instances: 64,
    memory_bytes: 64 << 20,
};
const NOW_US: u64 = 123_456;
const UNKNOWN: f64 = f64::NAN;

/// The columns `load.requests` and `worker.weight` of one candidate.
type Row = [f64; 2];

/// One language's scheduler, without its limit and with a limit of eight requests.
struct Language {
    name: String,
    bytes: Vec<u8>,
    engine: PolicyEngine,
    unlimited: WasmPolicy,
    of_eight: WasmPolicy,
}

impl Language {
    fn read(path: &Path) -> Self {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).unwrap();
        let engine = PolicyEngine::new(ROOM).unwrap();
        let configured = |params| {
            let loaded = load(&engine, &bytes, params);
            loaded.unwrap_or_else(|error| panic!("{name}: {error:?}"))
        };
        Self {
            unlimited: configured("{}"),
            of_eight: configured(r#"{"max-requests":8}"#),
            name,
            bytes,
            engine,
        }
    }
}

fn load(engine: &PolicyEngine, bytes: &[u8], params: &str) -> Result<WasmPolicy, LoadError> {
    let mut settings = PolicySettings {
        params_json: params.to_owned(),
        ..PolicySettings::default()
    };
    if bytes.len() > INTERPRETER_BYTES {
        settings.memory_bytes = 64 << 20;
    }
    // Time is not what is looked at here, and a busy machine takes it from everybody.
    settings.cpu_budget = Duration::from_secs(1);
    settings.wall_limit = Duration::from_secs(10);
    engine.load("tested", bytes, &settings, Arc::default())
}

/// Returns every language, loaded once a process.
fn languages() -> &'static [Language] {
    static LANGUAGES: OnceLock<Vec<Language>> = OnceLock::new();
    LANGUAGES.get_or_init(|| {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages")];
        folders.extend(env::var_os("CONDUCTOR_LANGUAGES").map(PathBuf::from));
        let mut found: Vec<_> = folders.iter().flat_map(|folder| components(folder)).collect();
        found.sort();
        found.iter().map(|path| Language::read(path)).collect()
    })
}

fn components(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    assert!(!paths.is_empty(), "no component in {}", folder.display());
    paths
}

fn decide(policy: &WasmPolicy, seq: u64, rows: &[Row]) -> Result<Verdict, PolicyFault> {
    let ids: Vec<_> = (7..).map(WorkerId).take(rows.len()).collect();
    let queries: Arc<dyn DecisionQueries> = Arc::new(Answers);
    policy.decide(&DecisionInput {
        request: &RequestFacts {
            now_us: NOW_US,
            ..RequestFacts::of_seq(seq)
        },
        ids: &ids,
        numbers: rows.as_flattened(),
        queries: &queries,
    })
}

fn route(row: u32, score: f64) -> Verdict {
    Verdict::Route(Choice {
        row,
        prefill: None,
        score,
    })
}

/// Checks the verdict of every language, without a limit.
#[track_caller]
fn check(rows: &[Row], verdict: &Verdict) {
    for language in languages() {
        let decided = decide(&language.unlimited, 1, rows);
        assert_eq!(decided.as_ref(), Ok(verdict), "{}", language.name);
    }
}

/// Checks the verdict of every language, where a worker may have eight requests.
#[track_caller]
fn check_of_eight(rows: &[Row], verdict: &Verdict) {
    for language in languages() {
        let decided = decide(&language.of_eight, 1, rows);
        assert_eq!(decided.as_ref(), Ok(verdict), "{}", language.name);
    }
}

#[test]
fn every_language_has_its_manifest_and_requests_two_columns() {
    for language in languages() {
        let policy = &language.unlimited;
        println!("{}: {:?}", language.name, policy.report());
        assert_eq!(policy.manifest().name, "least-queued", "{}", language.name);
        assert_eq!(policy.manifest().version, "0.1.0", "{}", language.name);
        assert_eq!(policy.plan().request().len(), 0, "{}", language.name);
        assert_eq!(policy.plan().candidate().len(), 2, "{}", language.name);
    }
}

#[test]
fn the_fewest_requests_for_the_weight_win() {
    check(&[[4.0, 1.0], [3.0, 1.0], [5.0, 2.0]], &route(2, -2.5));
    check(&[[4.0, 1.0]], &route(0, -4.0));
    check(&[[2.0, 0.5], [3.0, 1.0], [100.0, 10.0]], &route(1, -3.0));
}

#[test]
fn ties_are_shared_and_the_same_request_goes_the_same_way() {
    let rows = [[1.0, 1.0], [9.0, 1.0], [2.0, 2.0], [0.5, 0.5]];
    for language in languages() {
        let mut counts = [0; 4];
        for seq in 1..=600 {
            let decided = decide(&language.unlimited, seq, &rows);
            assert_eq!(
                decided,
                decide(&language.unlimited, seq, &rows),
                "{}",
                language.name
            );
            let Ok(Verdict::Route(choice)) = decided else {
                panic!("{}: {decided:?}", language.name)
            };
            counts[choice.row as usize] += 1;
        }
        let even = |row: usize| (150..=250).contains(&counts[row]);
        assert!(even(0) && even(2) && even(3), "{}: {counts:?}", language.name);
        assert_eq!(counts[1], 0, "{}", language.name);
    }
}

#[test]
fn an_unknown_load_is_passed_over_and_an_unknown_weight_counts_as_one() {
    check(&[[UNKNOWN, 1.0], [7.0, 1.0], [UNKNOWN, UNKNOWN]], &route(1, -7.0));
    check(&[[UNKNOWN, 1.0], [UNKNOWN, 2.0]], &Verdict::Pass);
    check(&[[2.0, UNKNOWN], [5.0, 2.0]], &route(0, -2.0));
    check(&[[3.0, UNKNOWN], [5.0, 2.0]], &route(1, -2.5));
    check(&[[2.0, 0.0], [5.0, 2.0]], &route(0, -2.0));
    check(&[[2.0, -1.0], [5.0, 2.0]], &route(0, -2.0));
}

#[test]
fn a_full_worker_gets_no_more_and_a_full_fleet_holds_the_request() {
    // Equal orders go by arrival. The time of a call would put a request that is evaluated again behind all others.
    let held = Verdict::Queue(Hold {
        order: 0.0,
        ask_again_ms: 50,
        waits_for: None,
    });
    check(&[[8.0, 4.0], [5.0, 1.0]], &route(0, -2.0));
    check_of_eight(&[[8.0, 4.0], [5.0, 1.0]], &route(1, -5.0));
    check_of_eight(&[[7.0, 1.0]], &route(0, -7.0));
    check_of_eight(&[[8.0, 1.0], [9.0, 4.0]], &held);
    check_of_eight(&[[8.0, 1.0], [UNKNOWN, 1.0]], &held);
    check_of_eight(&[[UNKNOWN, 1.0]], &Verdict::Pass);
}

#[test]
fn wrong_parameters_are_refused_with_a_reason() {
    const WRONG: [&str; 5] = [
        r#"{"max-requests":"many"}"#,
        r#"{"most":8}"#,
        r#"{"max-requests":-1}"#,
        r#"{"max-requests":true}"#,
        r#"{"max-requests":8,"most":8}"#,
    ];
    for language in languages() {
        // An interpreter takes seconds to compile.
        let few = if language.bytes.len() > INTERPRETER_BYTES {
            2
        } else {
            WRONG.len()
        };
        for params in WRONG.into_iter().take(few) {
            let error = load(&language.engine, &language.bytes, params).unwrap_err();
            // A policy that describes its parameters is not even called.
            let refused = matches!(error, LoadError::Params { .. } | LoadError::ParamsRefused(_));
            assert!(refused, "{}: {params}: {error}", language.name);
            let message = error.to_string();
            let names_one = message.contains("max-requests") || message.contains("unknown parameter `most`");
            assert!(names_one, "{}: {params}: {message}", language.name);
        }
    }
}

#[test]
fn a_limit_may_be_written_with_a_fraction_and_zero_is_none() {
    let rows = [[2.0, 1.0], [3.0, 1.0]];
    let small = |language: &&Language| language.bytes.len() <= INTERPRETER_BYTES;
    for language in languages().iter().filter(small) {
        let decided = |params: &str| {
            decide(
                &load(&language.engine, &language.bytes, params).unwrap(),
                1,
                &rows,
            )
        };
        let held = decided(r#"{"max-requests":1.5}"#);
        assert!(
            matches!(held, Ok(Verdict::Queue(_))),
            "{}: {held:?}",
            language.name
        );
        assert_eq!(
            decided(r#"{"max-requests":0}"#),
            Ok(route(0, -2.0)),
            "{}",
            language.name
        );
    }
}

#[test]
fn a_thousand_candidates_are_no_trouble() {
    let mut rows = vec![[3.0, 1.0]; 1024];
    rows[1000] = [2.0, 1.0];
    check(&rows, &route(1000, -2.0));
    rows[1000] = [3.0, 1.0];
    for language in languages() {
        let decided = decide(&language.unlimited, 1, &rows);
        assert!(matches!(decided, Ok(Verdict::Route(choice)) if choice.score == -3.0));
    }
}

/// Fleets with few different loads, so that many are tied, and some numbers unknown.
fn fleet(seq: u64) -> Vec<Row> {
    let mut bits = seq;
    let mut next = |most: u64| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (bits >> 33) % most
    };
    let mut number = |most: u64| match next(most + 1) {
        0 => UNKNOWN,
        number => number as f64,
    };
    let candidates = 1 + seq % 40;
    (0..candidates).map(|_| [number(12), number(3)]).collect()
}

/// Returns a verdict without what may differ between languages: which of the tied candidates gets the request.
fn without_ties(verdict: Verdict, rows: &[Row]) -> Verdict {
    let Verdict::Route(choice) = verdict else {
        return verdict;
    };
    let [requests, weight] = rows[choice.row as usize];
    let cost = requests / if weight > 0.0 { weight } else { 1.0 };
    assert_eq!(choice.score, -cost, "{rows:?}");
    Verdict::Route(Choice { row: 0, ..choice })
}

#[test]
fn all_languages_decide_alike_over_thousands_of_calls() {
    let first = &languages()[0];
    for language in languages() {
        for seq in 1..=5_000 {
            let rows = fleet(seq);
            for (here, there) in [
                (&language.unlimited, &first.unlimited),
                (&language.of_eight, &first.of_eight),
            ] {
                let decided =
                    decide(here, seq, &rows).unwrap_or_else(|fault| panic!("{}: {fault}", language.name));
                let expected = decide(there, seq, &rows).unwrap();
                assert_eq!(
                    without_ties(decided, &rows),
                    without_ties(expected, &rows),
                    "{}: {seq}",
                    language.name
                );
            }
        }
    }
}
