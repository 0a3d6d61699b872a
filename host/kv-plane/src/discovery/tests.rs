//! Test of the limit of feeds.

use inference_api::EventSource;
use kv_feed::{FeedLimits, MAX_FEEDS};
use kv_index::IndexLimits;
use prometheus_client::registry::Registry;

use super::endpoint_trust::MOST_UNDECLARED;
use super::*;
use crate::KvPlane;
use crate::index_sink::tests::LiveWorkers;

fn target(number: u32) -> Target {
    let name = format!("gpu-{number}");
    Target {
        url: format!("http://{name}:8000").into(),
        tls: PageTls::default(),
        authorization: Authorization::Drop,
        publishers: Box::new([Publisher {
            worker: WorkerId(number),
            name: name.as_str().into(),
            rank: None,
        }]),
        name: name.into(),
        hosts: Box::default(),
        ipc: false,
        curve: None,
    }
}

fn source(number: u32, rank: usize) -> EventSource {
    EventSource {
        rank: u16::try_from(rank).unwrap(),
        endpoint: format!("tcp://gpu-{number}:{}", 5_557 + rank),
        replay: None,
        topic: String::new(),
    }
}

#[test]
fn a_plan_is_not_refused_for_the_feeds_that_engines_report() {
    let (index, live) = (IndexLimits { max_blocks: 8 }, Arc::<LiveWorkers>::default());
    let plane = KvPlane::start(index, FeedLimits::default(), live, &mut Registry::default()).unwrap();
    let discovery = &plane.discovery;
    let plan = || FeedPlan {
        targets: (0..63).map(target).collect(),
        ..FeedPlan::default()
    };
    discovery.apply(discovery.check(plan()).unwrap());
    for number in 0..63 {
        let sources = (0..MOST_UNDECLARED).map(|rank| source(number, rank)).collect();
        let mut state = discovery.state();
        state
            .targets
            .learn(&target(number), SourceAnswer::Sources(sources), Instant::now());
    }
    assert!(discovery.state().targets.specs().count() > MAX_FEEDS);
    assert!(discovery.check(plan()).is_ok());
}
