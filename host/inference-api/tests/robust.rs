//! No bytes of a client or an engine break a claim. The gate tries a few; `fuzz/` is for many.

mod claims;

use proptest::collection::vec;
use proptest::prelude::*;

/// Pieces of bodies and streams: plain noise rarely means anything.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "\"model\":",
    "\"prompt\":",
    "\"messages\":",
    "\"input\":",
    "\"stream\":true",
    "\"n\":2",
    "[1,2,3]",
    "\"text\"",
    "\\u00e9",
    "\\ud800",
    "é",
    "1e999",
    "-1",
    "null",
    "data: ",
    "data: [DONE]\n\n",
    "\n\n",
    "\r\n\r\n",
    "event: response.completed\n",
    "\"usage\":{\"prompt_tokens\":5,",
    "\"prompt_tokens_details\":{\"cached_tokens\":3}",
    "\"completion_tokens\":2}",
    "\"error\":{\"code\":404}",
    "\0",
];

fn like_a_body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..64).prop_map(|pieces| pieces.concat())
}

/// Returns bytes as the claim cuts them: pieces of any length, each after its length.
fn like_a_stream() -> impl Strategy<Value = Vec<u8>> {
    (like_a_body(), 1_usize..64).prop_map(|(text, width)| {
        let pieces = text.chunks(width).map(|piece| {
            let length = u8::try_from(piece.len()).expect("below 64");
            [&[length], piece].concat()
        });
        pieces.collect::<Vec<_>>().concat()
    })
}

#[test]
fn nesting_without_end_is_seen_before_it_is_parsed() {
    for deep in ["[", "{\"a\":", "[{\"a\":["] {
        claims::body(deep.repeat(200_000).as_bytes());
    }
}

proptest! {
    #[test]
    fn a_body_of_any_bytes_is_peeked_at(bytes in like_a_body()) {
        claims::body(&bytes);
    }

    #[test]
    fn a_stream_of_any_bytes_is_read_the_same_however_it_is_cut(bytes in like_a_stream()) {
        claims::stream(&bytes);
    }
}
