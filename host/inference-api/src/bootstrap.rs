//! Bootstrap server answers: the engines behind a prefill worker (vLLM 0.32, `MooncakeConnector`: `GET /query`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

#[derive(Deserialize)]
struct BootstrapEngine {
    engine_id: String,
}

/// Returns the engine ids by data-parallel rank; none for an answer of another shape. Empty until an engine has
/// registered.
#[must_use]
pub fn engine_ids(body: &[u8]) -> Option<BTreeMap<u16, Arc<str>>> {
    let engines: BTreeMap<u16, BootstrapEngine> = serde_json::from_slice(body).ok()?;
    Some(
        engines
            .into_iter()
            .map(|(rank, engine)| (rank, engine.engine_id.into()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_their_engine_ids_are_read_and_the_rest_is_skipped() {
        let body = br#"{"0":{"engine_id":"d225","worker_addr":{"0":{"0":"tcp://127.0.0.1:40583"}}},"1":{"engine_id":"e1"}}"#;
        let ids = engine_ids(body).unwrap();
        assert_eq!(ids.len(), 2);
        assert_eq!(&*ids[&0], "d225");
        assert_eq!(&*ids[&1], "e1");
        assert_eq!(engine_ids(b"{}"), Some(BTreeMap::new()));
    }

    #[test]
    fn an_answer_of_another_form_has_no_engine_ids() {
        for body in [
            &b"[]"[..],
            b"",
            br#"{"a":{"engine_id":"x"}}"#,
            br#"{"0":{"id":"x"}}"#,
        ] {
            assert_eq!(engine_ids(body), None);
        }
    }
}
