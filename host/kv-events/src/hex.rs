//! Digests spelt in hexadecimal, with or without `0x`.
//!
//! It must not know whose digests they are: engines differ in which end of one they announce.

/// A 64-bit number has this many digits; shorter text names no block.
const DIGITS: usize = 16;

/// The last 64 bits; none where it is not hexadecimal or too short.
pub(crate) fn low64(text: &[u8]) -> Option<u64> {
    digits(text)?.last_chunk().map(number)
}

/// The first 64 bits; none where it is not hexadecimal or too short.
pub(crate) fn high64(text: &[u8]) -> Option<u64> {
    digits(text)?.first_chunk().map(number)
}

/// Whether it is hexadecimal digits and nothing else.
pub(crate) fn is_hex(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

fn digits(text: &[u8]) -> Option<&[u8]> {
    let text = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))
        .unwrap_or(text);
    is_hex(text).then_some(text)
}

fn number(digits: &[u8; DIGITS]) -> u64 {
    digits.iter().fold(0, |number, &digit| {
        let value = char::from(digit).to_digit(16).unwrap_or_default();
        (number << 4) | u64::from(value)
    })
}
