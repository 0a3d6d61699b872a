//! Hexadecimal digests, with or without `0x`.
//!
//! This module does not know the engines, which announce different ends of a digest.

/// Digits of a 64-bit number. Shorter text is not a block hash.
const DIGITS: usize = 16;

/// Returns the last 64 bits, or `None` if the text is too short or not hexadecimal.
pub(crate) fn low64(text: &[u8]) -> Option<u64> {
    digits(text)?.last_chunk().map(number)
}

/// Returns the first 64 bits, or `None` if the text is too short or not hexadecimal.
pub(crate) fn high64(text: &[u8]) -> Option<u64> {
    digits(text)?.first_chunk().map(number)
}

/// Returns `true` if the text contains only hexadecimal digits.
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
