//! Decoders under arbitrary bytes, and under damaged answers: they return, within their bounds.

use proptest::prelude::*;
use worker_discovery::{Decoded, KubeStore, KubeView, LineBuffer, ListPages, target_groups};

use crate::defaults;

const GROUPS: &str =
    r#"[{"targets": ["10.0.0.1:8000", "b:2"], "labels": {"conductor_role": "decode", "rack": "7"}}]"#;
const LIST: &str = r#"{"metadata": {"resourceVersion": "7", "continue": ""}, "items": [{"metadata": {"name": "a",
    "resourceVersion": "3", "labels": {"conductor/ranks": "2"}}, "endpoints": [{"addresses": ["10.0.0.1"],
    "conditions": {"ready": true}}], "ports": [{"name": "http", "port": 8000}], "status": {"podIP": "10.0.0.2"}}]}"#;
const EVENT: &str = r#"{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "9"},
    "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 8000}]}}"#;

fn store(is_slices: bool) -> KubeStore {
    KubeStore::new(KubeView {
        is_slices,
        port: None,
        defaults: defaults(),
    })
}

/// Returns a text with some bytes replaced, and its end cut off.
fn damaged(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((0..text.len(), any::<u8>()), 0..4);
    (edits, 0..=text.len()).prop_map(move |(edits, length)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        bytes
    })
}

fn is_in_order(decoded: &Decoded) -> bool {
    let urls: Vec<_> = decoded.workers.iter().map(|worker| &worker.url).collect();
    urls.windows(2).all(|pair| pair[0] < pair[1])
}

proptest! {
    #[test]
    fn target_groups_of_any_bytes_are_an_answer_in_order_or_an_error(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), damaged(GROUPS)],
    ) {
        if let Ok(decoded) = target_groups(&bytes, &defaults()) {
            prop_assert!(is_in_order(&decoded));
        }
    }

    #[test]
    fn lists_of_any_bytes_are_pages_or_errors(bytes in damaged(LIST), is_slices in any::<bool>()) {
        let mut store = store(is_slices);
        let mut pages = ListPages::default();
        if store.read_page(&mut pages, &bytes).is_ok() {
            store.replace(pages);
            if let Ok(decoded) = store.answer() {
                prop_assert!(is_in_order(&decoded));
            }
        }
    }

    #[test]
    fn a_watch_that_is_cut_anywhere_and_in_any_pieces_gives_its_whole_lines(
        pieces in prop::collection::vec(1_usize..40, 1..30),
        count in 1_usize..4,
    ) {
        let line = EVENT.replace('\n', " ") + "\n";
        let stream = line.repeat(count);
        let mut buffer = LineBuffer::new(1_000);
        let mut store = store(true);
        let mut rest = stream.as_bytes();
        let mut lines = 0;
        for length in pieces {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            for line in buffer.take(piece).unwrap() {
                store.apply(&line).unwrap();
                lines += 1;
            }
        }
        prop_assert_eq!(lines, (stream.len() - rest.len()) / line.len());
    }

    #[test]
    fn a_damaged_line_is_an_error_or_a_change(bytes in damaged(EVENT), is_slices in any::<bool>()) {
        let mut store = store(is_slices);
        let _ = store.apply(&bytes);
        if let Ok(decoded) = store.answer() {
            prop_assert!(decoded.workers.len() <= 1);
        }
    }
}
