//! Recordings of Mooncake's own publisher in its three settings. The tests compare the objects that its store holds in
//! the end.

use std::collections::BTreeSet;

use kv_events::{RejectReason, decode_objects, live_message};
use routing::{ObjectEvent, Tier};

use crate::recordings::{data, frames, lines};

/// Blocks held at the end of a recording, and the reasons of the skipped events.
type Outcome = (BTreeSet<(u64, Tier)>, Vec<RejectReason>);

fn replayed(name: &str) -> Option<Outcome> {
    let path = data()?.join(format!(
        "captures/mooncake/mooncake-publisher-{name}.events.jsonl"
    ));
    let (mut held, mut reasons) = (BTreeSet::new(), Vec::new());
    for (line, number) in lines(&path).iter().zip(1..) {
        let frames = frames(&line["frames"]);
        let message = live_message(&frames).unwrap();
        assert_eq!(message.sequence, number, "a store counts from 1");
        let batch = decode_objects(message.payload).unwrap();
        assert!(batch.ts_ms.is_some_and(|ms| ms > 1e12), "milliseconds");
        let kinds = line["decoded"]["batch"][1].as_array().unwrap();
        assert_eq!(batch.events.len() + batch.rejected.total(), kinds.len());
        for event in batch.events {
            match event {
                ObjectEvent::Stored { object, tier } => {
                    assert!(held.insert((object.block.0, tier)));
                }
                ObjectEvent::Removed { object, tier } => {
                    assert!(held.remove(&(object.block.0, tier.unwrap())));
                }
                ObjectEvent::Cleared => held.clear(),
            }
        }
        reasons.extend(batch.rejected.samples().iter().map(|event| event.reason));
    }
    Some((held, reasons))
}

#[test]
fn follows_the_objects_of_every_setting_of_the_publisher() {
    let held: BTreeSet<_> = [1001, 1002, 1003, 0xdead_beef_cafe_f00d]
        .map(|block| (block, Tier::Host))
        .into();
    // The recordings' one key in vLLM's form has a made-up hash of 5 bytes, which no engine could announce.
    let short = [RejectReason::BadObjectKey; 2];
    for (name, reasons) in [
        ("default", &short[..]),
        ("no-legacy", &short),
        ("no-object-key", &[]),
    ] {
        let Some(outcome) = replayed(name) else { return };
        assert_eq!(outcome, (held.clone(), reasons.to_vec()), "{name}");
    }
}
