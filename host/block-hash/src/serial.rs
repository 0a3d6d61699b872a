//! Structure of vLLM's hash input, independent of its serialization: `(parent digest, (token, ...), extra keys or
//! None)`.

use crate::digest::Digest;
use crate::extra_key::ExtraKey;

/// Serializer of the Python values in a block.
pub(crate) trait Serializer {
    fn none(&mut self);
    fn int(&mut self, number: i64);
    fn bytes(&mut self, bytes: &[u8]);
    fn text(&mut self, text: &str);
    /// Writes a literal of vLLM's source: one Python object, however often it occurs.
    fn word(&mut self, word: &'static str);
    /// Begins a tuple of `len` values.
    fn open(&mut self, len: usize);
    fn close(&mut self, len: usize);
    /// Writes a tuple of ints.
    fn ints(&mut self, numbers: &[u32]);
    /// Ends the value.
    fn end(&mut self);
}

/// Ints encoded at a time.
pub(crate) const BATCH: usize = 16;
/// Most bytes of a batch.
pub(crate) const BATCH_BYTES: usize = BATCH * 5;

/// Appends ints of up to 5 bytes each, at most [`BATCH`] of them. Writing to the stack with a fixed width first is
/// three times as fast as appending each.
#[inline]
pub(crate) fn append_batch(out: &mut Vec<u8>, numbers: &[u32], encode: impl Fn(i32) -> ([u8; 5], usize)) {
    let mut batch = [0; BATCH_BYTES];
    let mut at = 0;
    for &number in numbers {
        let (bytes, len) = encode(number as i32);
        batch[at..at + 5].copy_from_slice(&bytes);
        at += len;
    }
    out.extend_from_slice(&batch[..at]);
}

pub(crate) fn write_block(
    mut out: impl Serializer,
    parent: &Digest,
    tokens: &[u32],
    extra_keys: &[ExtraKey<'_>],
) {
    out.open(3);
    out.bytes(parent.as_bytes());
    out.ints(tokens);
    if extra_keys.is_empty() {
        out.none();
    } else {
        out.open(extra_keys.len());
        for key in extra_keys {
            key.write(&mut out);
        }
        out.close(extra_keys.len());
    }
    out.close(3);
    out.end();
}

pub(crate) fn write_seed(mut out: impl Serializer, seed: &str) {
    out.text(seed);
    out.end();
}
