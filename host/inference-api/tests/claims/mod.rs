//! Claims that hold for any bytes of a client or an engine. The fuzz targets (`fuzz/`) make the same claims.

use bytes::Bytes;
use inference_api::{
    CachedTokensFilter, DisabledThinking, Endpoint, PromptParts, ResponseIdFinder, Split, Tail,
    TemplateRules, error_in_first_event, is_deeper_than, is_response_id, peek,
};
use serde_json::Value;

const RULES: TemplateRules = TemplateRules {
    merges_system: true,
    disabled_thinking: DisabledThinking::Low,
};

/// Checks a client's body: the result of reading has no more than the body, and nothing deep is parsed.
pub(crate) fn body(bytes: &[u8]) {
    for endpoint in Endpoint::ALL.iter().copied() {
        if let Ok(peeked) = peek(endpoint, bytes) {
            assert!(peeked.model.len() <= bytes.len());
            let ids = peeked.token_ids().unwrap_or_default();
            assert!(ids.len() <= bytes.len());
            let _ = (peeked.user(), peeked.prompt_cache_key(), peeked.cache_salt());
            let _ = (
                peeked.tokenize_body(),
                peeked.render_path(),
                peeked.previous_response_id(),
            );
            if let Some(PromptParts::Messages(prompt)) = peeked.prompt_parts() {
                let _ = prompt.chat(Some(RULES));
            }
        }
        let _ = Split::read(endpoint, &Bytes::copy_from_slice(bytes));
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let depth = depth(&value);
        // Of fields that stand there twice the tree has one only.
        assert!(depth == 0 || is_deeper_than(bytes, depth - 1));
        // The parser's own limit.
        assert!(!is_deeper_than(bytes, 128));
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Checks an engine's stream, cut into pieces after a length byte each: the result does not depend on the cuts.
pub(crate) fn stream(mut bytes: &[u8]) {
    let mut pieces = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let (piece, rest) = rest.split_at(usize::from(length).min(rest.len()));
        pieces.push(piece);
        bytes = rest;
    }
    let _ = pieces.first().map(|first| error_in_first_event(first));
    let (mut cut, mut whole) = (Tail::default(), Tail::default());
    let mut filter = CachedTokensFilter::new(Some(7));
    let mut ids = ResponseIdFinder::default();
    for piece in &pieces {
        cut.push(piece);
        assert!(ids.push(piece).is_none_or(|id| is_response_id(&id)));
        let _ = filter.push(Bytes::copy_from_slice(piece));
    }
    let _ = filter.finish();
    whole.push(&pieces.concat());
    assert_eq!(read(&cut), read(&whole));
}

fn read(tail: &Tail) -> (bool, Option<u64>, Option<u64>, Option<u64>) {
    (
        tail.stream_is_finished(),
        tail.cached_tokens(),
        tail.prompt_tokens(),
        tail.output_tokens(),
    )
}
