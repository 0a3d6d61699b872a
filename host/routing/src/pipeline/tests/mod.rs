//! Tests of whole pipelines, over scripted scorers.

mod properties;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::circuit::Circuit;
use crate::feature::CandidateFeature;
use crate::id::WorkerId;
use crate::policy::{DecisionQueries, NoAnswers, RequestFacts, Scorer};

/// Scores by its first column, and fails on command.
#[derive(Debug)]
struct Scripted {
    plan: FeaturePlan,
    fails: AtomicBool,
}

impl Scripted {
    fn new(columns: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            plan: FeaturePlan::resolve(&["request.stream"], columns).unwrap(),
            fails: AtomicBool::new(false),
        })
    }
}

impl PolicyDescription for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Scripted {
    fn decide(&self, _: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        Ok(Verdict::Pass)
    }

    fn scorer(&self) -> Option<&dyn Scorer> {
        Some(self)
    }
}

impl Scorer for Scripted {
    fn score(&self, input: &DecisionInput<'_>, scores: &mut [f64]) -> Result<(), PolicyFault> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(PolicyFault {
                policy: self.name().into(),
                kind: FaultKind::Trap,
                detail: "by command".to_owned(),
            });
        }
        assert_eq!(input.numbers[0], 1.0, "request.stream");
        let rows = input.numbers[1..].chunks_exact(self.plan.candidate().len());
        for (score, row) in scores.iter_mut().zip(rows) {
            *score = row[0];
        }
        Ok(())
    }

    fn score_recording(
        &self,
        input: &DecisionInput<'_>,
        scores: &mut [f64],
    ) -> (Result<(), PolicyFault>, Transcript) {
        (self.score(input, scores), Transcript::default())
    }
}

/// Keeps each report as one word.
#[derive(Debug, Default)]
struct ObservedReports(Mutex<Vec<String>>);

impl ObservedReports {
    fn push(&self, report: String) {
        self.0.lock().unwrap().push(report);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl PipelineObserver for ObservedReports {
    fn failed(
        &self,
        at: usize,
        _: &PolicyVersion,
        fault: &PolicyFault,
        change: CircuitChange,
        _: &RequestFacts,
    ) {
        let opened = matches!(change, CircuitChange::Opened(_));
        self.push(format!(
            "{at} failed by {}, opened: {opened}",
            fault.kind.as_str()
        ));
    }

    fn recovered(&self, at: usize, _: &PolicyVersion) {
        self.push(format!("{at} recovered"));
    }

    fn left_out(&self, at: usize) {
        self.push(format!("{at} left out"));
    }

    fn ignored(&self, filter: usize) {
        self.push(format!("filter {filter} ignored"));
    }
}

fn feature(name: &str, weight: f64) -> Term {
    let source = TermSource::Feature(name.into());
    Term { source, weight }
}

fn scorer(weight: f64) -> Term {
    let source = TermSource::Policy("scripted".into());
    Term { source, weight }
}

fn at_most(name: &str, at_most: f64, strict: bool) -> Filter {
    let (name, at_least) = (name.into(), f64::NEG_INFINITY);
    let test = FilterTest::Feature {
        name,
        at_least,
        at_most,
    };
    Filter { test, strict }
}

fn spec(filters: Vec<Filter>, terms: Vec<Term>, pick: Pick) -> PipelineSpec {
    PipelineSpec { filters, terms, pick }
}

/// A pipeline over one fleet, whose candidates have these numbers by name.
struct Stage {
    pipeline: Pipeline,
    observed: Arc<ObservedReports>,
    rows: Vec<Vec<(&'static str, f64)>>,
}

impl Stage {
    fn new(spec: PipelineSpec, scorers: &[Arc<Scripted>], rows: &[&[(&'static str, f64)]]) -> Self {
        let observed = Arc::<ObservedReports>::default();
        let next = Cell::new(0);
        let scorer = |_: &str| {
            let scorer = scorers.get(next.replace(next.get() + 1))?;
            Some(PolicyVersions::only(Arc::clone(scorer) as _))
        };
        let pipeline = Pipeline::new("mine", spec, scorer, Arc::clone(&observed) as _).unwrap();
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        Self {
            pipeline,
            observed,
            rows,
        }
    }

    fn decide(&self, seq: u64, now_us: u64) -> (Verdict, Transcript) {
        let request = RequestFacts {
            now_us,
            ..RequestFacts::of_seq(seq)
        };
        let ids: Vec<_> = (0..self.rows.len() as u32).map(WorkerId).collect();
        let mut numbers = vec![1.0; self.pipeline.plan().request().len()];
        for row in &self.rows {
            let number = |feature: &CandidateFeature| {
                let name = feature.name();
                let known = row.iter().find(|(known, _)| *known == name);
                known.map_or(f64::NAN, |(_, number)| *number)
            };
            numbers.extend(self.pipeline.plan().candidate().iter().map(number));
        }
        let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
        let input = DecisionInput {
            request: &request,
            ids: &ids,
            numbers: &numbers,
            queries: &queries,
        };
        let (verdict, transcript) = self.pipeline.decide_recording(&input);
        let observed = self.observed.take();
        // Recorded or not, the decision is the same, but the scorer's circuit has counted twice.
        if observed.is_empty() {
            assert_eq!(self.pipeline.decide(&input), verdict);
        }
        observed.into_iter().for_each(|report| self.observed.push(report));
        (verdict.unwrap(), transcript)
    }

    #[track_caller]
    fn chooses(&self, expected: u32, score: f64) {
        match self.decide(1, 0).0 {
            Verdict::Route(choice) => {
                assert_eq!(choice.row, expected);
                assert!((choice.score - score).abs() < 1e-12, "{}", choice.score);
            }
            other => panic!("{other:?}"),
        }
    }
}

const REQUESTS: &str = "load.requests";
const ANY: &str = "prefix.any-tokens";
const WEIGHT: &str = "worker.weight";

#[test]
fn numbers_of_all_units_are_weighed_on_one_scale() {
    let rows: &[&[_]] = &[
        &[(REQUESTS, 0.0), (ANY, 0.0)],
        &[(REQUESTS, 2.0), (ANY, 4_000.0)],
        &[(REQUESTS, 4.0), (ANY, 4_000.0)],
    ];
    let of = |requests, prefix| {
        let terms = vec![feature(REQUESTS, requests), feature(ANY, prefix)];
        Stage::new(spec(vec![], terms, Pick::Max), &[], rows)
    };
    // Idle is 1, half as busy a half, busiest 0; the prefix is all or nothing.
    of(-1.0, 1.0).chooses(1, 0.75);
    of(-3.0, 1.0).chooses(0, 0.75);
    of(1.0, 0.001).chooses(2, 1.0);
}

#[test]
fn scorers_see_their_own_columns_and_count_by_their_weight() {
    let prefix = Scripted::new(&[ANY, WEIGHT]);
    let weight = Scripted::new(&[WEIGHT]);
    let rows: &[&[_]] = &[
        &[(REQUESTS, 9.0), (ANY, 100.0), (WEIGHT, 1.0)],
        &[(REQUESTS, 0.0), (ANY, 0.0), (WEIGHT, 2.0)],
    ];
    let terms = |of_prefix| vec![scorer(of_prefix), feature(REQUESTS, -1.0), scorer(1.0)];
    let of = |of_prefix| {
        let scorers = [Arc::clone(&prefix), Arc::clone(&weight)];
        Stage::new(spec(vec![], terms(of_prefix), Pick::Max), &scorers, rows)
    };
    of(1.0).chooses(1, 2.0 / 3.0);
    let stage = of(6.0);
    stage.chooses(0, 0.75);
    let (_, transcript) = stage.decide(1, 0);
    let weighing = transcript.weighing().unwrap();
    assert_eq!(weighing.figures, [0.75, 0.25]);
    let scores: Vec<_> = weighing
        .scored
        .iter()
        .map(|scored| scored.call.as_ref().unwrap().answer.clone().unwrap())
        .collect();
    assert_eq!(scores, [[100.0, 0.0], [1.0, 2.0]]);
}

/// The table of `host/docs/policies/pipelines.md`.
#[test]
fn the_worked_example_comes_out_as_the_page_has_it() {
    let tokens = Scripted::new(&[ANY]);
    let adapter = Scripted::new(&["label.sql-lora"]);
    let rows: &[&[_]] = &[
        &[(REQUESTS, 3.0), (ANY, 0.0), ("label.sql-lora", 1.0)],
        &[(REQUESTS, 0.0), (ANY, 800.0), ("label.sql-lora", 0.0)],
    ];
    let terms = vec![scorer(2.0), scorer(1.0), feature(REQUESTS, -1.0)];
    let stage = Stage::new(spec(vec![], terms, Pick::Max), &[tokens, adapter], rows);
    stage.chooses(1, 0.75);
    let (_, transcript) = stage.decide(1, 0);
    assert_eq!(transcript.weighing().unwrap().figures, [0.25, 0.75]);
}

#[test]
fn those_filtered_out_do_not_set_the_scale() {
    let rows: &[&[_]] = &[
        &[(REQUESTS, 40.0), (ANY, 9_000.0)],
        &[(REQUESTS, 1.0), (ANY, 100.0)],
        &[(REQUESTS, 0.0), (ANY, 0.0)],
    ];
    let terms = vec![feature(ANY, 2.0), feature(REQUESTS, -1.0)];
    let stage = Stage::new(
        spec(vec![at_most(REQUESTS, 32.0, false)], terms, Pick::Max),
        &[],
        rows,
    );
    stage.chooses(1, 2.0 / 3.0);
    let (_, transcript) = stage.decide(1, 0);
    let figures = &transcript.weighing().unwrap().figures;
    assert!(figures[0].is_nan() && figures[1] > figures[2], "{figures:?}");
}

#[test]
fn a_filter_that_leaves_no_candidate_is_ignored_and_reported_or_rejects() {
    let rows: &[&[_]] = &[&[(REQUESTS, 9.0)], &[(REQUESTS, 5.0)]];
    let terms = || vec![feature(REQUESTS, -1.0)];
    let filters = |strict| vec![at_most(REQUESTS, 6.0, false), at_most(REQUESTS, 1.0, strict)];
    let lenient = Stage::new(spec(filters(false), terms(), Pick::Max), &[], rows);
    lenient.chooses(1, 0.5);
    assert_eq!(lenient.observed.take(), ["filter 1 ignored"]);
    let (_, transcript) = lenient.decide(1, 0);
    assert_eq!(transcript.weighing().unwrap().ignored, 0b10);

    let strict = Stage::new(spec(filters(true), terms(), Pick::Max), &[], rows);
    match strict.decide(1, 0).0 {
        Verdict::Reject(rejection) => {
            assert_eq!(rejection.status, 503);
            assert!(
                rejection.reason.contains("load.requests at most 1"),
                "{}",
                rejection.reason
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_scorer_that_fails_is_left_out_and_rests_after_a_while() {
    let bad = Scripted::new(&[ANY]);
    let rows: &[&[_]] = &[&[(REQUESTS, 1.0), (ANY, 900.0)], &[(REQUESTS, 0.0), (ANY, 0.0)]];
    let terms = vec![scorer(9.0), feature(REQUESTS, -1.0)];
    let stage = Stage::new(spec(vec![], terms, Pick::Max), &[Arc::clone(&bad)], rows);
    stage.chooses(0, 0.9);
    bad.fails.store(true, Ordering::Relaxed);
    stage.chooses(1, 1.0);
    assert_eq!(
        stage.observed.take(),
        ["0 failed by trap, opened: false", "0 left out"]
    );
    (0..4).for_each(|_| stage.chooses(1, 1.0));
    assert!(
        stage
            .observed
            .take()
            .contains(&"0 failed by trap, opened: true".to_owned())
    );
    // The circuit is open: the scorer is not called.
    bad.fails.store(false, Ordering::Relaxed);
    stage.chooses(1, 1.0);
    assert_eq!(stage.observed.take(), ["0 left out"]);
    let (_, transcript) = stage.decide(1, 0);
    assert_eq!(transcript.weighing().unwrap().scored[0].call, None);
    // After three good tries it is back.
    (2..=4).for_each(|second| drop(stage.decide(1, second * 1_000_000)));
    assert!(stage.observed.take().contains(&"0 recovered".to_owned()));
    stage.chooses(0, 0.9);
}

#[test]
fn with_nothing_to_weigh_the_least_loaded_of_those_left_is_chosen() {
    let bad = Scripted::new(&[ANY]);
    bad.fails.store(true, Ordering::Relaxed);
    let rows: &[&[_]] = &[
        &[(REQUESTS, 0.0), (WEIGHT, 1.0), (ANY, 0.0)],
        &[(REQUESTS, 9.0), (WEIGHT, 1.0), (ANY, 8.0)],
        &[(REQUESTS, 11.0), (WEIGHT, 2.0), (ANY, 8.0)],
    ];
    let has_prefix = FilterTest::Feature {
        name: ANY.into(),
        at_least: 1.0,
        at_most: f64::INFINITY,
    };
    let filter = || Filter {
        test: has_prefix.clone(),
        strict: false,
    };
    let softly = Pick::Softmax { temperature: 0.1 };
    Stage::new(spec(vec![filter()], vec![scorer(1.0)], softly), &[bad], rows).chooses(2, -6.0);
    Stage::new(spec(vec![filter()], vec![], softly), &[], rows).chooses(2, -6.0);
}

#[test]
fn the_version_before_scores_while_the_newest_rests() {
    let (newest, before) = (Scripted::new(&[REQUESTS]), Scripted::new(&[ANY]));
    newest.fails.store(true, Ordering::Relaxed);
    let version = |policy: &Arc<Scripted>, id: &str| PolicyVersion {
        policy: Arc::clone(policy) as _,
        circuit: Arc::new(Circuit::default()),
        id: id.into(),
    };
    let chain = PolicyVersions::new(version(&newest, "2"), [version(&before, "1")]);
    let observed = Arc::<ObservedReports>::default();
    let one = spec(vec![], vec![scorer(1.0)], Pick::Max);
    let chain = Arc::new(chain);
    let scorer = |_: &str| Some(Arc::clone(&chain));
    let pipeline = Pipeline::new("mine", one, scorer, Arc::clone(&observed) as _).unwrap();
    let rows: Vec<Vec<_>> = vec![
        vec![(REQUESTS, 9.0), (ANY, 0.0)],
        vec![(REQUESTS, 1.0), (ANY, 7.0)],
    ];
    let stage = Stage {
        pipeline,
        observed,
        rows,
    };
    for seq in 1..=6 {
        stage.decide(seq, 0);
    }
    stage.chooses(1, 1.0);
    let (_, transcript) = stage.decide(1, 0);
    let call = transcript.weighing().unwrap().scored[0].call.clone().unwrap();
    assert_eq!(&*call.version, "1");
}

#[test]
fn a_version_that_does_not_score_needs_nothing_beforehand() {
    let version = |columns: &[&str]| PolicyVersion {
        policy: Scripted::new(columns) as _,
        circuit: Arc::new(Circuit::default()),
        id: columns[0].into(),
    };
    let (newest, before) = (version(&[REQUESTS]), version(&[ANY]));
    let chain = Arc::new(PolicyVersions::new(newest.clone(), [before]));
    let of = |terms| {
        let scorer = |_: &str| Some(Arc::clone(&chain));
        Pipeline::new(
            "mine",
            spec(vec![], terms, Pick::Max),
            scorer,
            Arc::new(Unobserved),
        )
        .unwrap()
    };
    let pipeline = of(vec![scorer(1.0)]);
    assert!(pipeline.plan().needs_prefix(), "a place is kept for it");
    assert!(!pipeline.needs_tokens() && !pipeline.needs_prefix());
    let by_column = of(vec![feature(ANY, 1.0)]);
    assert!(by_column.needs_tokens() && by_column.needs_prefix());
    let input = RequestFacts::of_seq(1);
    while newest.circuit.is_closed() {
        chain.choose(input.now_us).unwrap().failed(input.now_us);
    }
    assert!(pipeline.needs_tokens() && pipeline.needs_prefix());
}

#[test]
fn a_label_may_end_in_a_question_mark() {
    let test = FilterTest::Label {
        key: "zone?".into(),
        without: false,
        values: vec!["1".into()],
    };
    let filter = Filter { test, strict: false };
    let odd = Scripted::new(&["label.sql??"]);
    let rows: &[&[_]] = &[
        &[("label.zone??", 1.0), ("label.sql??", 3.0)],
        &[("label.zone??", 1.0), ("label.sql??", 4.0)],
        &[("label.zone??", 2.0), ("label.sql??", 5.0)],
    ];
    Stage::new(spec(vec![filter], vec![scorer(1.0)], Pick::Max), &[odd], rows).chooses(1, 1.0);
}

#[test]
fn policies_that_score_no_single_worker_are_left_out() {
    let pairing = Scripted::new(&["worker.role"]);
    assert!(!scores_singly(&*pairing) && !scores_singly(&crate::LeastLoaded::default()));
    let rows: &[&[_]] = &[&[(REQUESTS, 1.0)], &[(REQUESTS, 0.0)]];
    let terms = vec![scorer(9.0), scorer(9.0), feature(REQUESTS, -1.0)];
    let stage = Stage::new(spec(vec![], terms, Pick::Max), &[pairing], rows);
    assert!(!stage.pipeline.plan().pairs());
    stage.chooses(1, 1.0);
    assert_eq!(stage.observed.take(), ["0 left out", "1 left out"]);
}
