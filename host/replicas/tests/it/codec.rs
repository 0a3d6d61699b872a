//! The format of the messages.

use proptest::prelude::*;
use replicas::{
    GaugeRows, LoadMessage, PoolGauges, PoolKey, RouterId, WireError, WorkerGauges, WorkerKey, WorkerRow,
};
use routing::{BudgetUse, HELD_CLASSES, HeldSummary, LoadTotals};

fn worker_gauges() -> impl Strategy<Value = WorkerGauges> {
    let load = (
        0..1_u32 << 24,
        0..1_u32 << 24,
        0..1_u64 << 44,
        0..1_u64 << 44,
        0..1_u64 << 44,
    );
    let held = proptest::array::uniform::<_, HELD_CLASSES>((0..100_u32, 0..1_u64 << 40));
    let totals = load.prop_map(|numbers| {
        let (requests, decoding, prefill_tokens, prompt_tokens, decoding_tokens) = numbers;
        LoadTotals {
            requests,
            decoding,
            prefill_tokens,
            prompt_tokens,
            decoding_tokens,
        }
    });
    (totals, held, -1e13..1e13_f64).prop_map(|(totals, held, first)| {
        let is_empty = held == [(0, 0); HELD_CLASSES];
        let first = if is_empty { f64::INFINITY } else { first };
        WorkerGauges::new(totals, Some(&HeldSummary::of_classes(held, first)))
    })
}

fn rows() -> impl Strategy<Value = GaugeRows> {
    let full = proptest::collection::vec((any::<u64>().prop_map(WorkerKey), worker_gauges()), 0..20);
    let delta = proptest::collection::btree_map(0..10_000_u32, worker_gauges(), 0..20);
    prop_oneof![
        full.prop_map(GaugeRows::Full),
        delta.prop_map(|rows| {
            let rows = rows.into_iter().map(|(row, gauges)| WorkerRow { row, gauges });
            GaugeRows::Delta(rows.collect())
        }),
    ]
}

fn pools() -> impl Strategy<Value = Vec<PoolGauges>> {
    let numbers = (any::<u64>(), 0..1_u64 << 24, 0..1_u64 << 24, 0..1_u64 << 44);
    let pool = numbers.prop_map(|(pool, queued, requests, tokens)| PoolGauges {
        pool: PoolKey(pool),
        queued,
        budget: BudgetUse { requests, tokens },
    });
    proptest::collection::vec(pool, 0..4)
}

prop_compose! {
    fn load_message()(
        router: u64,
        table: u32,
        sequence: u64,
        sent_ms: u64,
        pools in pools(),
        rows in rows(),
    ) -> LoadMessage {
        LoadMessage { router: RouterId(router), table, sequence, sent_ms, pools, rows }
    }
}

proptest! {
    #[test]
    fn a_message_is_read_back(message in load_message()) {
        prop_assert_eq!(LoadMessage::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = LoadMessage::decode(&bytes);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(message in load_message(), at: usize, byte: u8, cut: usize) {
        let mut bytes = message.encode();
        let end = bytes.len();
        bytes[at % end] = byte;
        let _ = LoadMessage::decode(&bytes);
        prop_assert!(LoadMessage::decode(&message.encode()[..cut % end]).is_err());
    }
}

#[test]
fn a_delta_of_fifteen_workers_has_a_few_hundred_bytes() {
    let row = |at: u32| WorkerRow {
        row: 60 * at,
        gauges: super::gauges(20),
    };
    let message = LoadMessage {
        router: RouterId(1),
        table: 1,
        sequence: 9,
        sent_ms: 9,
        pools: Vec::new(),
        rows: GaugeRows::Delta((0..15).map(row).collect()),
    };
    let bytes = message.encode().len();
    assert!((100..300).contains(&bytes), "{bytes}");
}

#[test]
fn other_versions_and_extra_bytes_are_refused() {
    let message = LoadMessage {
        router: RouterId(1),
        table: 1,
        sequence: 1,
        sent_ms: 1,
        pools: Vec::new(),
        rows: GaugeRows::Delta(Vec::new()),
    };
    let bytes = message.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        LoadMessage::decode(&bytes)
    };
    assert_eq!(with(0, 9), Err(WireError::Version(9)));
    assert_eq!(with(1, 9), Err(WireError::Kind(9)));
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    assert_eq!(LoadMessage::decode(&longer), Err(WireError::Trailing));
    assert_eq!(
        LoadMessage::decode(&vec![1; (1 << 20) + 1]),
        Err(WireError::Large)
    );
}
