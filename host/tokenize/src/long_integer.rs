//! Long integers in JSON: those of more than 64 bits. They are read as floats, which have fewer digits.

/// Returns `true` if JSON has an integer of more than 64 bits.
pub(crate) fn is_in(json: &str) -> bool {
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        let is_number = !rest.starts_with('"');
        let end = match is_number {
            true => rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)),
            false => end_of_text(rest),
        };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        let is_integer = is_number && !token.contains(['.', 'e', 'E']);
        if is_integer && token.parse::<i64>().is_err() && token.parse::<u64>().is_err() {
            return true;
        }
        rest = after;
    }
    false
}

/// Returns the end of a JSON text, which begins with a quote.
fn end_of_text(json: &str) -> Option<usize> {
    let mut bytes = json.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at + 1),
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::value::parse;

    #[test]
    fn integers_that_lose_digits_are_refused() {
        for json in [
            "18446744073709551616",
            r#"{"a":["\"",-9223372036854775809]}"#,
            "[1e300,123456789012345678901]",
        ] {
            assert!(parse(json).is_err(), "{json}");
        }
        for json in [
            "1e300",
            r#"[1e300,"123456789012345678901",18446744073709551615]"#,
            "123456789012345678901.5",
        ] {
            assert!(parse(json).is_ok(), "{json}");
        }
    }
}
