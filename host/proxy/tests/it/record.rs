//! Tests of recorded requests.

mod blocks;
mod explained;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::StatusCode;
use prometheus_client::registry::Registry;
use proxy::record::{
    DecidedLine, DecisionLine, FileSpec, Line, OutcomeLine, PolicyLine, RecordFiles, RecordSpec, Recorder,
    Sampling, VerdictLine,
};
use routing::RunNumber;
use tempfile::TempDir;

use crate::client::{chat, post, send};
use crate::eventually;
use crate::policy::{Scripted, fault, route};
use crate::router::{Builder, Router, router};
use crate::tokens::querying_worker;
use crate::worker::Worker;

/// Run number of every router in these tests.
const RUN: RunNumber = RunNumber(0xfeed_0000_0000_0007);

/// Recorder with a file of its own, and its configuration.
struct Recording {
    folder: TempDir,
    registry: Registry,
    recorder: Arc<Recorder>,
}

/// Writes decisions to a file.
fn write_to(recorder: &Recorder, file: FileSpec) {
    let files = RecordFiles {
        decisions: Some(file),
        ..RecordFiles::default()
    };
    recorder.apply(recorder.plan(files).unwrap());
}

impl Recording {
    fn start() -> Self {
        Self::with(1 << 20, 2)
    }

    fn with(max_bytes: u64, keep: u32) -> Self {
        let mut registry = Registry::default();
        let recorder = Recorder::of_run(&mut registry, RUN);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.jsonl");
        write_to(
            &recorder,
            FileSpec {
                path,
                max_bytes,
                keep,
            },
        );
        Self {
            folder,
            registry,
            recorder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("decisions.jsonl")
    }

    /// Returns a configuration that records every request.
    fn everything(&self) -> RecordSpec {
        RecordSpec {
            file: Sampling::share(1.0),
            ..RecordSpec::nothing(Arc::clone(&self.recorder))
        }
    }

    /// Returns the recorded lines once all pending ones are written.
    fn lines(&self) -> Vec<Line> {
        self.recorder.close();
        lines(&self.file())
    }

    /// Starts a router before one worker, whose requests are all recorded.
    async fn router(&self, worker: &Worker) -> Router {
        router()
            .worker("a", &worker.url())
            .with(recorded_as(self.everything()))
            .start()
            .await
    }

    /// Waits until the files have so many lines.
    async fn has_written(&self, lines: u64) {
        eventually("all lines are written", || {
            self.metric("conductor_record_lines_total") == lines
        })
        .await;
    }

    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    }
}

fn lines(file: &Path) -> Vec<Line> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn decisions(lines: &[Line]) -> Vec<&DecisionLine> {
    let lines = lines.iter().filter_map(|line| match line {
        Line::Decision(decision) => Some(&**decision),
        _ => None,
    });
    lines.collect()
}

fn outcomes(lines: &[Line]) -> Vec<&OutcomeLine> {
    let lines = lines.iter().filter_map(|line| match line {
        Line::Outcome(outcome) => Some(&**outcome),
        _ => None,
    });
    lines.collect()
}

fn policies(lines: &[Line]) -> Vec<&PolicyLine> {
    let lines = lines.iter().filter_map(|line| match line {
        Line::Policy(policy) => Some(policy),
        _ => None,
    });
    lines.collect()
}

fn recorded_as(spec: RecordSpec) -> impl FnOnce(&mut Builder) {
    move |builder| builder.record = spec
}

#[tokio::test]
async fn a_request_is_a_decision_with_all_it_was_made_from_and_an_outcome() {
    let recording = Recording::start();
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let policy = Scripted::seeing(
        &["request.body-bytes", "request.max-tokens"],
        &["worker.weight"],
        |input| {
            assert_eq!(input.request.run, RUN);
            Ok(route(1))
        },
    );
    let router = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .policy(policy.clone())
        .with(recorded_as(recording.everything()))
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let id = answer.header("x-request-id").unwrap().to_owned();
    answer.text().await;
    recording.has_written(2).await;
    let lines = recording.lines();
    assert!(matches!(&lines[0], Line::Log(log) if log.schema == 1 && log.run.len() == 16));
    let Line::Log(first) = &lines[0] else {
        unreachable!()
    };
    assert_eq!(first.seed.as_deref(), Some("feed000000000007"));
    assert_eq!(first.run_number(), Some(RUN));
    let workers = lines.iter().filter_map(|line| match line {
        Line::Worker(worker) => Some((worker.id, &*worker.name)),
        _ => None,
    });
    assert_eq!(workers.collect::<Vec<_>>(), [(0, "a"), (1, "b")]);
    let policy_line = policies(&lines)[0];
    assert_eq!(
        (policy_line.id, &*policy_line.name, &policy_line.sha256),
        (1, "scripted", &None)
    );
    assert_eq!(
        policy_line.request_columns,
        ["request.body-bytes", "request.max-tokens"]
    );
    assert_eq!(policy_line.columns, ["worker.weight"]);

    let decision = decisions(&lines)[0];
    assert_eq!((&*decision.request, decision.seq, decision.attempt), (&*id, 1, 0));
    assert_eq!((decision.policy, decision.fallback), (1, false));
    assert_eq!(decision.ids, [0, 1]);
    let shown = policy.shown()[0]
        .iter()
        .map(|number| number.to_bits())
        .collect::<Vec<_>>();
    let written = decision
        .numbers
        .0
        .iter()
        .map(|number| number.to_bits())
        .collect::<Vec<_>>();
    assert_eq!(written, shown);
    assert!(decision.numbers.0[1].is_nan(), "no limit on the answer");
    let Some(VerdictLine::Route {
        row: 1,
        prefill: None,
        score,
    }) = &decision.verdict
    else {
        panic!("{decision:?}")
    };
    assert!(score.0.is_nan());
    assert_eq!(
        decision.decided,
        Some(DecidedLine::Route {
            worker: 1,
            prefill: None
        })
    );

    let outcome = outcomes(&lines)[0];
    assert_eq!(
        (&*outcome.request, outcome.seq, &*outcome.outcome),
        (&*id, 1, "complete")
    );
    assert_eq!(
        (outcome.status, outcome.worker.as_deref()),
        (Some(200), Some("b"))
    );
    let mode = fs::metadata(recording.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_fault_is_written_and_so_is_what_the_fallback_made_of_it() {
    let recording = Recording::start();
    let worker = Worker::named("a").await;
    let router = router()
        .worker("a", &worker.url())
        .policy(Scripted::new(|_| Err(fault())))
        .with(recorded_as(recording.everything()))
        .start()
        .await;
    send(router.address, chat()).await.text().await;
    recording.has_written(3).await;
    let lines = recording.lines();
    let [failed, fallback] = decisions(&lines)[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(failed.fault.as_ref().map(|fault| &*fault.kind), Some("trap"));
    assert_eq!((&failed.verdict, &failed.decided), (&None, &None));
    assert!(fallback.fallback && fallback.decided.is_some());
    let names: Vec<_> = policies(&lines)
        .iter()
        .map(|policy| policy.name.clone())
        .collect();
    assert_eq!(names, ["scripted", "least-loaded"]);
}

#[tokio::test]
async fn every_column_is_written_where_configured_and_the_decision_is_none_the_wiser() {
    let recording = Recording::start();
    let worker = Worker::named("a").await;
    let policy = Scripted::first(&[], &["load.requests"]);
    let spec = RecordSpec {
        all_columns: true,
        ..recording.everything()
    };
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .with(querying_worker)
        .with(recorded_as(spec))
        .start()
        .await;
    router.feeds.set(router.id("a"), true);
    let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    assert_eq!(
        answer.header("x-conductor-matched-tokens"),
        None,
        "the policy sent no query"
    );
    answer.text().await;
    recording.has_written(2).await;
    assert_eq!(policy.shown(), [[0.0]]);
    let lines = recording.lines();
    let (policy, decision) = (policies(&lines)[0], decisions(&lines)[0]);
    let more = &policy.more_columns;
    assert!(!more.contains(&"load.requests".to_owned()), "{more:?}");
    let request = policy
        .more_request_columns
        .iter()
        .position(|name| name == "request.prompt-tokens")
        .unwrap();
    assert_eq!(decision.more_numbers.0[request], 10.0);
    let prefix = more.iter().position(|name| name == "prefix.any-tokens").unwrap();
    assert_eq!(
        decision.more_numbers.0[policy.more_request_columns.len() + prefix],
        0.0
    );
    assert_eq!(outcomes(&lines)[0].prompt_tokens, Some(10));
}

#[tokio::test]
async fn files_are_put_aside_when_they_are_full_and_each_can_be_read_by_itself() {
    let recording = Recording::with(2_000, 2);
    let worker = Worker::named("a").await;
    let router = recording.router(&worker).await;
    for _ in 0..20 {
        send(router.address, chat()).await.text().await;
    }
    recording.has_written(40).await;
    recording.recorder.close();
    let mut files: Vec<_> = fs::read_dir(recording.folder.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let lines = lines(&file);
        assert!(matches!(lines[0], Line::Log(_)));
        let mut has_policy = false;
        for line in &lines {
            match line {
                Line::Policy(policy) => has_policy = policy.id == 1,
                Line::Decision(decision) => assert!(has_policy && decision.policy == 1),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_another_program_moves_away_is_begun_anew_without_a_loss() {
    let recording = Recording::start();
    let worker = Worker::named("a").await;
    let router = recording.router(&worker).await;
    send(router.address, chat()).await.text().await;
    recording.has_written(2).await;
    let moved = recording.folder.path().join("moved");
    fs::rename(recording.file(), &moved).unwrap();
    // The file is checked once a second.
    let mut sent = 1;
    let send_one = async |sent: &mut u64| {
        send(router.address, chat()).await.text().await;
        *sent += 1;
        recording.has_written(2 * *sent).await;
    };
    while !recording.file().exists() {
        send_one(&mut sent).await;
    }
    // The new file may begin with an outcome alone.
    send_one(&mut sent).await;
    let (before, after) = (lines(&moved), recording.lines());
    assert!(matches!(after[0], Line::Log(_)));
    assert_eq!(policies(&after).len(), 1, "it can be read by itself");
    let decided = decisions(&before).len() + decisions(&after).len();
    assert_eq!(decided as u64, sent);
}

/// Answers a request while its two lines cannot be written to `path`.
async fn is_lost(path: &str) {
    let recording = Recording::start();
    let path = recording.folder.path().join(path);
    let there = path.parent().is_some_and(Path::is_dir);
    if there {
        fs::write(&path, "keep me\n").unwrap();
    }
    let file = FileSpec {
        path: path.clone(),
        max_bytes: 4,
        keep: 2,
    };
    write_to(&recording.recorder, file);
    let worker = Worker::named("a").await;
    let router = recording.router(&worker).await;
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    eventually("both are counted", || {
        recording.metric("conductor_record_dropped_total{why=\"no-file\"}") == 2
    })
    .await;
    assert_eq!(recording.metric("conductor_record_lines_total"), 0);
    if there {
        assert_eq!(fs::read_to_string(&path).unwrap(), "keep me\n");
    }
}

#[tokio::test]
async fn unwritable_record_lines_are_counted_and_delay_no_request() {
    is_lost("nowhere/decisions.jsonl").await;
}

#[tokio::test]
async fn a_file_that_is_no_decision_log_is_left_as_it_is() {
    is_lost("conductor.toml").await;
}

#[tokio::test]
async fn recording_is_turned_on_and_off_while_requests_come() {
    let recording = Recording::start();
    let worker = Worker::named("a").await;
    let plain = router().worker("a", &worker.url());
    let mut router = plain.clone().start().await;
    send(router.address, chat()).await.text().await;
    router.change(plain.clone().with(recorded_as(recording.everything())));
    send(router.address, chat()).await.text().await;
    recording.has_written(2).await;
    router.change(plain);
    send(router.address, chat()).await.text().await;
    let lines = recording.lines();
    let written: Vec<_> = decisions(&lines).iter().map(|decision| decision.seq).collect();
    assert_eq!(written, [2]);
}
