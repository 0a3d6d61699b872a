//! The shape of what vLLM hashes, whatever it is serialised to: `(parent digest, (token, ...), extra keys or None)`.

use crate::digest::Digest;
use crate::extra::ExtraKey;

/// A serialisation of the few kinds of Python values that a block is made of.
pub(crate) trait Serialise {
    fn none(&mut self);
    fn int(&mut self, number: i64);
    fn bytes(&mut self, bytes: &[u8]);
    fn text(&mut self, text: &str);
    /// A literal of vLLM's source: one Python object, however often it occurs.
    fn word(&mut self, word: &'static str);
    /// A tuple of `len` values, which follow.
    fn open(&mut self, len: usize);
    fn close(&mut self, len: usize);
    /// A tuple of ints.
    fn ints(&mut self, numbers: &[u32]);
    /// The end of the value.
    fn end(&mut self);
}

/// Ints encoded at a time.
pub(crate) const BATCH: usize = 16;
/// Most bytes that a batch takes.
pub(crate) const BATCH_BYTES: usize = BATCH * 5;

/// Appends ints of up to 5 bytes each, at most [`BATCH`] of them. Written to the stack with a fixed width first: three
/// times as fast as appending each.
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
    mut out: impl Serialise,
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

pub(crate) fn write_seed(mut out: impl Serialise, seed: &str) {
    out.text(seed);
    out.end();
}
