//! Tests of `Scenario`: it offers every feature of the router's catalogue, with the same limits and seeds.

use conductor_policy_sdk::testing::Scenario;
use conductor_policy_sdk::{
    Call, Configured, ConfiguredScorer, Event, EventKind, Events, Host, Level, OptionalNumber, Params, Plan,
    Policy, Request, Role, Scorer, StateError, Tick, Tier, Verdict,
};
use routing::{CANDIDATE_CATALOGUE, REQUEST_CATALOGUE};

/// Test policy that requests every number and checks the layout of the call.
struct Everything;

impl Policy for Everything {
    const NAME: &'static str = "everything";
    const VERSION: &'static str = "1";

    fn configure(_: &mut Params, plan: &mut Plan) -> Self {
        for (_, doc) in REQUEST_CATALOGUE {
            plan.request(doc.name);
        }
        for (_, doc) in CANDIDATE_CATALOGUE {
            plan.column(doc.name);
        }
        plan.column("label.zone");
        plan.column("engine.power-watts?");
        Self
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        assert_eq!(call.rows().count(), call.ids().len());
        host.log(Level::Info, &host.model());
        Verdict::Pass
    }
}

#[test]
fn knows_every_feature_of_the_routers_catalogue() {
    let everything = Configured::<Everything>::new("{}").unwrap();
    let mut fleet = Scenario::new(["a", "b"]);
    fleet.set_model("m");
    assert_eq!(fleet.decide(&everything), Verdict::Pass);
    let numbers = fleet.numbers(everything.plan());
    let columns = CANDIDATE_CATALOGUE.len() + 2;
    assert_eq!(numbers.len(), REQUEST_CATALOGUE.len() + 2 * columns);
    let never_unknown = REQUEST_CATALOGUE.iter().map(|(_, doc)| doc);
    let never_unknown = never_unknown.chain(CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc));
    for (doc, number) in never_unknown.zip(&numbers) {
        assert_eq!(number.is_nan(), !doc.unknown.starts_with("never"), "{}", doc.name);
    }
    assert_eq!(fleet.logged(), [(Level::Info, "m".to_owned())]);
}

#[test]
fn derived_numbers_need_not_be_set() {
    let everything = Configured::<Everything>::new("{}").unwrap();
    let mut fleet = Scenario::new(["a", "b", "c"]);
    fleet
        .set("a", "load.requests", 3.0)
        .set("a", "load.decoding", 1.0);
    fleet.holds("b", 64.0).offer(&["a", "b"]);
    let numbers = fleet.numbers(everything.plan());
    let request = |name: &str| {
        REQUEST_CATALOGUE
            .iter()
            .position(|(_, doc)| doc.name == name)
            .unwrap()
    };
    let candidate = |name: &str| {
        let column = CANDIDATE_CATALOGUE.iter().position(|(_, doc)| doc.name == name);
        REQUEST_CATALOGUE.len() + column.unwrap()
    };
    assert_eq!(numbers[request("pool.workers")], 3.0);
    assert_eq!(numbers[request("prefix.best-tokens")], 64.0);
    assert_eq!(numbers[candidate("load.queued")], 2.0);
    let next_row = CANDIDATE_CATALOGUE.len() + 2;
    let hash = candidate("worker.name-hash");
    assert_ne!(numbers[hash], numbers[hash + next_row]);
}

#[test]
#[should_panic(expected = "unknown feature `load.request`")]
fn a_misspelt_feature_fails_the_test() {
    Scenario::new(["a"]).set("a", "load.request", 1.0);
}

#[test]
fn numbers_that_do_not_match_the_plan_make_no_call() {
    let everything = Configured::<Everything>::new("{}").unwrap();
    let fleet = Scenario::new(["a"]);
    let numbers = fleet.numbers(everything.plan());
    let verdict = everything.schedule(Default::default(), fleet.ids(), &numbers[1..], &fleet);
    assert_eq!(verdict, Verdict::Pass);
    assert!(fleet.logged().is_empty());
}

#[test]
fn index_queries_follow_the_columns() {
    let mut fleet = Scenario::new(["a", "b", "c"]);
    fleet.holds("b", 64.0).set("c", "prefix.any-tokens", 32.0);
    assert_eq!(fleet.matched(Tier::Device), [0, 64, 0]);
    assert_eq!(fleet.matched(Tier::Disk), [0, 64, 32]);
    assert_eq!((fleet.holders(32), fleet.holders(33)), (2, 1));
    fleet.offer(&["a"]);
    assert!(
        fleet.matched(Tier::Disk).is_empty(),
        "no match of a candidate is known"
    );
    assert_eq!(fleet.holders(0), 0);
}

#[test]
fn matches_of_an_unknown_prompt_are_an_empty_list() {
    let mut fleet = Scenario::new(["a", "b"]);
    assert!(fleet.matched(Tier::Device).is_empty());
    fleet.set("a", "prefix.any-tokens", f64::NAN);
    assert!(fleet.matched(Tier::Disk).is_empty());
    fleet.set("a", "prefix.any-tokens", 0.0);
    assert_eq!(fleet.matched(Tier::Disk), [0, 0]);
}

#[test]
fn a_counter_and_bytes_are_not_mixed_up() {
    let fleet = Scenario::new(["a"]);
    assert_eq!(fleet.add_state("n", 2), Ok(2));
    assert_eq!(fleet.add_state("n", -3), Ok(-1));
    assert_eq!(fleet.state("n"), Some((-1_i64).to_le_bytes().to_vec()));
    assert_eq!(fleet.set_state("n", b"text"), Ok(()));
    assert_eq!(fleet.add_state("n", 1), Err(StateError::NotACounter));
    fleet.delete_state("n");
    assert_eq!(fleet.add_state("n", 1), Ok(1));
}

#[test]
fn a_label_is_described_only_for_candidates() {
    let mut fleet = Scenario::new(["a", "b"]);
    fleet.label("b", "zone", "eu").offer(&["b"]);
    assert_eq!(fleet.describe(0), None);
    let about = fleet.describe(1).unwrap();
    assert_eq!(about.labels, [("zone".to_owned(), "eu".to_owned())]);
}

#[test]
fn a_role_is_both_described_and_a_number() {
    let mut plan = Plan::default();
    let role = plan.roles();
    let mut fleet = Scenario::new(["m", "p", "d"]);
    fleet.role("p", Role::Prefill).role("d", Role::Decode);
    let numbers = fleet.numbers(&plan);
    let call = Call::new(Request::default(), fleet.ids(), &numbers, &plan).unwrap();
    let roles: Vec<_> = call.rows().map(|row| row.role(role)).collect();
    assert_eq!(roles, [Role::Mixed, Role::Prefill, Role::Decode]);
    let described = fleet.ids().iter().map(|&id| fleet.describe(id).unwrap().role);
    assert_eq!(described.collect::<Vec<_>>(), roles);
}

#[test]
fn unknown_is_the_default_and_zero_is_not() {
    assert_eq!(f64::NAN.known_or(3.0), 3.0);
    assert_eq!(0.0.known_or(3.0), 0.0);
}

#[test]
fn a_session_is_remembered_by_worker_until_it_expires() {
    let mut fleet = Scenario::new(["a", "b"]);
    fleet.remember_session(1, 1000);
    assert_eq!(
        fleet.session(Some(7)).recall_session(),
        None,
        "there was no session"
    );
    fleet.remember_session(9, 1000);
    assert_eq!(fleet.recall_session(), None, "there is no such row");
    fleet.remember_session(1, 1000);
    assert_eq!(fleet.offer(&["b", "a"]).recall_session(), Some(0));
    assert_eq!(
        fleet.offer(&["a"]).recall_session(),
        None,
        "its worker is no candidate"
    );
    assert_eq!(fleet.offer(&["a", "b"]).clock(999_999).recall_session(), Some(1));
    assert_eq!(
        fleet.clock(1_000_000).recall_session(),
        None,
        "the entry has expired"
    );
    fleet.remember_session(0, 1000);
    fleet.forget_session();
    assert_eq!(fleet.recall_session(), None);
}

/// Test policy that counts failures by worker, and ticks.
struct Counts;

impl Policy for Counts {
    const NAME: &'static str = "counts";
    const VERSION: &'static str = "1";

    fn configure(_: &mut Params, _: &mut Plan) -> Self {
        Self
    }

    fn schedule(&self, _: &Call<'_>, _: &impl Host) -> Verdict {
        Verdict::Pass
    }
}

impl Events for Counts {
    const KINDS: &'static [EventKind] = &[EventKind::RequestFailed, EventKind::WorkerLeft];

    fn handle(&self, batch: &[Event], host: &impl Host) {
        for event in batch {
            let about = host.describe(event.worker).expect("a worker of the batch");
            host.add_state(&format!("{} {} {}", event.kind.name(), about.name, event.seq), 1)
                .expect("the state has room");
            assert_eq!(host.recall_session(), None, "no request is current");
        }
    }
}

impl Tick for Counts {
    fn tick(&self, host: &impl Host) -> u32 {
        assert_eq!(host.describe(0), None, "no batch is current");
        host.add_state("ticks", 1).expect("the state has room");
        500
    }
}

#[test]
fn a_policy_receives_its_events_and_ticks() {
    let counts = Configured::<Counts>::new("{}").unwrap();
    let mut fleet = Scenario::new(["a", "b"]);
    fleet.session(Some(7)).remember_session(0, 1000);
    fleet.decide(&counts);
    // Events may name a worker that is no candidate any more.
    fleet.offer(&["b"]).deliver(
        &counts,
        &[
            (EventKind::RequestFailed, "a", 12.0),
            (EventKind::RequestFinished, "b", 12.0),
            (EventKind::WorkerLeft, "a", f64::NAN),
        ],
    );
    assert_eq!(fleet.add_state("request.failed a 1", 0), Ok(1));
    assert_eq!(fleet.add_state("worker.left a 0", 0), Ok(1));
    assert_eq!(fleet.state("request.finished b 1"), None);
    assert_eq!(fleet.tick(&counts), 500);
    assert_eq!(fleet.add_state("ticks", 0), Ok(1));
}

impl Scorer for Counts {
    const NAME: &'static str = "counts";
    const VERSION: &'static str = "1";

    fn configure(_: &mut Params, _: &mut Plan) -> Self {
        Self
    }

    fn score(&self, call: &Call<'_>, _: &impl Host) -> Vec<f64> {
        call.scores(|_| f64::NAN)
    }
}

#[test]
fn a_scorer_receives_events_and_ticks_as_a_policy_does() {
    let counts = ConfiguredScorer::<Counts>::new("{}").unwrap();
    let mut fleet = Scenario::new(["a"]);
    fleet.deliver(&counts, &[(EventKind::WorkerLeft, "a", f64::NAN)]);
    assert_eq!(fleet.add_state("worker.left a 0", 0), Ok(1));
    assert_eq!(fleet.tick(&counts), 500);
}

#[test]
fn the_kinds_of_events_match_the_routers() {
    let ours: Vec<&str> = EventKind::ALL.map(EventKind::name).to_vec();
    let theirs: Vec<&str> = routing::EventKind::ALL.map(routing::EventKind::as_str).to_vec();
    assert_eq!(ours, theirs);
}
