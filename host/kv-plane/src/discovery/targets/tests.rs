//! Tests of the schedule of queries, and of the publishers of their answers.

use super::*;
use crate::discovery::source_client::SourceError;

const WORKER: WorkerId = WorkerId(7);

struct Scenario {
    targets: Targets,
    now: Instant,
}

impl Scenario {
    fn new() -> Self {
        let now = Instant::now();
        let publisher = publisher(WORKER, "w", None);
        Self {
            targets: Targets::default().next(vec![target(vec![publisher])], now),
            now,
        }
    }

    /// Seconds until the next query.
    #[track_caller]
    fn queried_after(&mut self, seconds: u64) {
        if let Some(before) = seconds.checked_sub(1) {
            let before = self.now + Duration::from_secs(before);
            assert!(self.targets.due(before).is_empty(), "queried too early");
        }
        self.now += Duration::from_secs(seconds);
        assert_eq!(self.targets.due(self.now).len(), 1, "not queried");
    }

    fn learn(&mut self, answer: SourceAnswer) -> bool {
        let target = self.targets.0[0].target.clone();
        self.targets.learn(&target, answer, self.now)
    }

    fn found(&mut self, port: u16) -> bool {
        self.learn(SourceAnswer::Sources(vec![source(0, port), source(1, port + 1)]))
    }

    fn feeds_are(&mut self, state: FeedState) {
        self.targets
            .watch([(WORKER, FeedState::Live), (WORKER, state)], self.now);
    }
}

fn target(publishers: Vec<Publisher>) -> Target {
    Target {
        name: "w".into(),
        url: "http://gpu-1:8000".into(),
        tls: PageTls::default(),
        authorization: Authorization::Drop,
        publishers: publishers.into(),
        hosts: Box::default(),
        ipc: false,
        curve: None,
    }
}

fn publisher(worker: WorkerId, name: &str, rank: Option<u16>) -> Publisher {
    Publisher {
        worker,
        name: name.into(),
        rank: rank.map(DpRank),
    }
}

fn source(rank: u16, port: u16) -> EventSource {
    EventSource {
        rank,
        endpoint: format!("tcp://gpu-1:{port}"),
        replay: None,
        topic: "kv".to_owned(),
    }
}

fn failed() -> SourceAnswer {
    SourceAnswer::Failed(SourceError::Timeout("/kv_event_sources"))
}

#[test]
fn a_worker_that_does_not_answer_is_queried_ever_more_rarely() {
    let mut scenario = Scenario::new();
    for pause in [0, 1, 2, 4, 8, 16, 32, 60, 60] {
        scenario.queried_after(pause);
        assert!(!scenario.learn(failed()));
    }
    assert_eq!(scenario.targets.report(scenario.now)[0].state, "asking");
}

#[test]
fn a_worker_without_events_is_queried_every_few_minutes() {
    let mut scenario = Scenario::new();
    for pause in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        scenario.queried_after(pause);
        assert!(!scenario.learn(SourceAnswer::Absent));
    }
    assert_eq!(scenario.targets.report(scenario.now)[0].state, "none");
    let report = &scenario.targets.report(scenario.now)[0];
    assert!(
        report
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("no page")),
        "{report:?}"
    );
    assert_eq!(report.next_try_s, Some(300));
}

#[test]
fn found_feeds_are_followed_rank_by_rank_and_not_queried_again_while_they_are_well() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    assert!(scenario.found(5557));
    let specs: Vec<_> = scenario.targets.specs().collect();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[1].rank, Some(DpRank(1)));
    assert_eq!(
        specs[1].endpoint,
        Endpoint::Connect("tcp://gpu-1:5558".to_owned())
    );
    scenario.feeds_are(FeedState::Live);
    assert!(scenario.targets.due(scenario.now + LAST_PAUSE_WITHOUT).is_empty());
}

#[test]
fn the_ranks_of_a_server_are_the_caches_of_the_workers_pinned_to_them() {
    let mut scenario = Scenario::new();
    let ranked = target(vec![
        publisher(WorkerId(1), "w@2", Some(2)),
        publisher(WorkerId(2), "w@3", Some(3)),
    ]);
    scenario.targets = Targets::default().next(vec![ranked], scenario.now);
    scenario.learn(SourceAnswer::Sources(vec![
        source(3, 5560),
        source(2, 5559),
        source(1, 5558),
    ]));
    let specs: Vec<_> = scenario
        .targets
        .specs()
        .map(|spec| (spec.worker, spec.name.to_string(), spec.rank))
        .collect();
    let expected = [(2, "w@3", 3), (1, "w@2", 2)]
        .map(|(worker, name, rank)| (WorkerId(worker), name.to_owned(), Some(DpRank(rank))));
    assert_eq!(specs, expected, "no worker is pinned to rank 1");
    scenario
        .targets
        .watch([(WorkerId(2), FeedState::Connecting)], scenario.now);
    scenario.queried_after(5);
}

#[test]
fn a_worker_whose_feeds_stay_down_is_queried_for_new_endpoints() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    scenario.found(5557);
    scenario.feeds_are(FeedState::Connecting);
    scenario.queried_after(5);
    assert!(!scenario.found(5557), "the same again");
    scenario.feeds_are(FeedState::Connecting);
    scenario.queried_after(5);
    assert!(!scenario.learn(failed()));
    assert_eq!(scenario.targets.specs().count(), 2);
    scenario.queried_after(10);
    assert!(scenario.found(6557));
    scenario.feeds_are(FeedState::Live);
    assert!(scenario.targets.due(scenario.now + LAST_PAUSE_WITHOUT).is_empty());
}

#[test]
fn a_short_outage_causes_no_query() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    scenario.found(5557);
    scenario.feeds_are(FeedState::Connecting);
    scenario.feeds_are(FeedState::Rebuilding);
    assert!(scenario.targets.due(scenario.now + LAST_PAUSE).is_empty());
}

#[test]
fn a_worker_that_stops_publishing_loses_its_feeds() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    scenario.found(5557);
    assert!(scenario.learn(SourceAnswer::Sources(Vec::new())));
    assert_eq!(scenario.targets.specs().count(), 0);
}

#[test]
fn feeds_outlive_another_key_and_a_worker_without_is_queried_with_it_at_once() {
    let with_other_key = |scenario: &Scenario| {
        let target = Target {
            authorization: Authorization::bearer("other").unwrap(),
            ..scenario.targets.0[0].target.clone()
        };
        let mut next = scenario.targets.next(vec![target], scenario.now);
        (next.specs().count(), next.due(scenario.now).len())
    };
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    assert_eq!(with_other_key(&scenario), (0, 1));
    scenario.found(5557);
    assert_eq!(with_other_key(&scenario), (2, 0));
}

#[test]
fn feeds_outlive_other_trusted_hosts_and_the_worker_is_queried_at_once() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    scenario.found(5557);
    let with_other_hosts = Target {
        hosts: ["gpu-2".into()].into(),
        ..scenario.targets.0[0].target.clone()
    };
    scenario.targets = scenario.targets.next(vec![with_other_hosts], scenario.now);
    assert_eq!(scenario.targets.specs().count(), 2);
    scenario.feeds_are(FeedState::Live);
    scenario.queried_after(0);
    let elsewhere = EventSource {
        endpoint: "tcp://gpu-2:5558".to_owned(),
        ..source(1, 5558)
    };
    assert!(scenario.learn(SourceAnswer::Sources(vec![source(0, 5557), elsewhere])));
    assert_eq!(scenario.targets.specs().count(), 2);
    scenario.feeds_are(FeedState::Live);
    assert!(scenario.targets.due(scenario.now + LAST_PAUSE_WITHOUT).is_empty());

    let without = Target {
        hosts: Box::default(),
        ..scenario.targets.0[0].target.clone()
    };
    let next = scenario.targets.next(vec![without], scenario.now);
    let left: Vec<_> = next.specs().map(|spec| spec.rank).collect();
    assert_eq!(left, [Some(DpRank(0))], "the other is not trusted any more");
}

#[test]
fn endpoints_that_are_not_trusted_any_more_are_reported_before_the_next_query() {
    let mut scenario = Scenario::new();
    let trusting = Target {
        hosts: ["gpu-2".into()].into(),
        ..scenario.targets.0[0].target.clone()
    };
    scenario.targets = Targets::default().next(vec![trusting], scenario.now);
    let elsewhere = EventSource {
        endpoint: "tcp://gpu-2:5557".to_owned(),
        ..source(0, 5557)
    };
    assert!(scenario.learn(SourceAnswer::Sources(vec![elsewhere])));
    let without = Target {
        hosts: Box::default(),
        ..scenario.targets.0[0].target.clone()
    };
    let next = scenario.targets.next(vec![without], scenario.now);
    let report = &next.report(scenario.now)[0];
    assert_eq!((report.state, report.feeds, report.refused.len()), ("none", 0, 1));
    let reason = report.reason.as_deref().unwrap();
    assert!(reason.contains("tcp://gpu-2:5557"), "{reason}");
}

#[test]
fn discovered_event_sources_outlive_a_reload() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    scenario.found(5557);
    let same = scenario.targets.0[0].target.clone();
    let other = Target {
        name: "x".into(),
        ..same.clone()
    };
    let next = scenario.targets.next(vec![other, same], scenario.now);
    assert_eq!(next.specs().count(), 2);
    assert_eq!(scenario.targets.next(Vec::new(), scenario.now).specs().count(), 0);
}

#[test]
fn an_endpoint_at_another_host_is_not_followed_and_the_report_shows_it() {
    let mut scenario = Scenario::new();
    scenario.queried_after(0);
    let stray = EventSource {
        endpoint: "tcp://10.9.9.9:22".to_owned(),
        ..source(0, 1)
    };
    assert!(!scenario.learn(SourceAnswer::Sources(vec![stray])));
    assert_eq!(scenario.targets.specs().count(), 0);
    let report = &scenario.targets.report(scenario.now)[0];
    assert_eq!((report.state, report.refused.len()), ("none", 1));
    assert_eq!(report.refused[0].endpoint, "tcp://10.9.9.9:22");
    let reason = report.reason.as_deref().unwrap();
    assert!(
        reason.contains("tcp://10.9.9.9:22") && reason.contains("kv-events-hosts"),
        "{reason}"
    );
    // A later answer replaces it.
    scenario.queried_after(1);
    assert!(scenario.found(5557));
    assert!(scenario.targets.report(scenario.now)[0].refused.is_empty());
}
