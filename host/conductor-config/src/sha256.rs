//! SHA-256 hashes as 64 hexadecimal digits.

use std::fmt;

use routing::hex;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::value::Text;

/// The hash of a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(pub [u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

/// Reads the hash in the form that `sha256sum` prints.
pub(crate) fn read(text: &Text<'_>, key: &str, report: &Report) -> Option<Sha256> {
    let hash = parse(text.text);
    if hash.is_none() {
        report.push(
            Problem::new(
                Code::InvalidValue,
                &text.span,
                format!("`{key}` takes a SHA-256: 64 hexadecimal digits"),
            )
            .help("`sha256sum NAME.wasm` prints it"),
        );
    }
    hash
}

/// Reads the hash of a key. An invalid one may be the key itself, and is not repeated in the message.
pub(crate) fn read_key_hash(text: &Text<'_>, report: &Report) -> Option<Sha256> {
    let hash = parse(text.text);
    if hash.is_none() {
        let message = "`key-sha256` takes the SHA-256 of a key, never the key: 64 hexadecimal digits";
        report.push(Problem::new(Code::InvalidValue, &text.span, message).help(
            "`conductor client-key` makes a key and prints its hash; printf %s \"$KEY\" | sha256sum prints that of one you have",
        ));
    }
    hash
}

fn parse(text: &str) -> Option<Sha256> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    if digits.len() != 64 {
        return None;
    }
    bytes.try_into().ok().map(Sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_round_trip_in_either_case() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let hash = parse(text).unwrap();
        assert_eq!(hash.to_string(), text);
        assert_eq!(parse(&text.to_uppercase()), Some(hash));
        assert_eq!(hash.0[0], 0xe3);
    }

    #[test]
    fn text_that_is_no_hash_is_refused() {
        let digits = "0".repeat(64);
        for text in [
            "",
            "00",
            &digits[1..],
            &format!("{digits}0"),
            &format!("{}g", &digits[1..]),
            &format!(" {digits}"),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
