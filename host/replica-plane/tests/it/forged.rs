//! Messages of a router that names another one.

use replicas::{
    Bus as _, CostMessage, FleetSubject, GaugeRows, HelloMessage, LoadMessage, RouterId, RouterState,
    SubjectKind, UsageKey, UsageMessage, UsageRow, UsageValue,
};

use crate::bus::Hub;
use crate::{Router, pass};

/// Returns a message of each kind that names a router, with the highest number.
fn messages_of(router: RouterId) -> [(SubjectKind, Vec<u8>); 4] {
    let sequence = u64::MAX;
    let load = LoadMessage {
        router,
        table: 0,
        sequence,
        sent_ms: 0,
        pools: Vec::new(),
        rows: GaugeRows::Full(Vec::new()),
    };
    let usage = UsageMessage {
        router,
        sequence,
        sent_ms: 0,
        rows: vec![UsageRow {
            key: UsageKey { group: 1, name: 1 },
            value: UsageValue::Gauge(7),
        }],
    };
    let costs = CostMessage {
        router,
        sequence,
        workers: Vec::new(),
    };
    let hello = HelloMessage {
        router: router.to_string(),
        name: "forged".to_owned(),
        version: String::new(),
        state: RouterState::Draining,
        fleet_hash: String::new(),
        config_hash: String::new(),
        sent_ms: 0,
        fill: None,
    };
    [
        (SubjectKind::Load, load.encode()),
        (SubjectKind::Usage, usage.encode()),
        (SubjectKind::Cost, costs.encode()),
        (SubjectKind::Hello, hello.encode()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_message_that_names_another_router_than_its_subject_is_refused_and_counted() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(300).await;
    let forger = hub.join();
    for (kind, payload) in messages_of(RouterId(1)) {
        let router = RouterId(3);
        forger.publish(FleetSubject { kind, router }, payload);
    }
    pass(10).await;
    let _lease = one.worker(0).load().book(1, 1);
    one.used(5, 2);
    pass(1_100).await;
    assert_eq!(two.requests(0), 1, "its own messages are applied");
    assert_eq!(two.elsewhere()[1], 2);
    let report = two.reports.get().unwrap();
    let names: Vec<_> = report.others.iter().map(|row| row.name.as_deref()).collect();
    assert_eq!(names, [Some("router-1")]);
    assert_eq!(two.counter("conductor_replicas_refused_messages_total"), 4);
    assert_eq!(two.counter("conductor_replicas_missing_messages_total"), 0);
}
