//! W3C trace context: ids, and the header `traceparent`.

use std::fmt;

/// Length of a `traceparent` of version 00, in bytes.
pub const TRACEPARENT_BYTES: usize = 55;

/// Flag of a sampled trace.
const SAMPLED: u8 = 1;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Id of a trace, which is never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Id of a span, which is never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Parent of a request, as `traceparent` states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace: TraceId,
    /// Id of the parent span.
    pub span: SpanId,
    /// Set if the parent is sampled.
    pub is_sampled: bool,
}

impl TraceId {
    /// Makes an id. `None` for zero.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the 56 random bits that consistent samplers compare with their threshold.
    #[must_use]
    pub fn randomness(self) -> u64 {
        let [.., a, b, c, d, e, f, g] = self.0;
        u64::from_be_bytes([0, a, b, c, d, e, f, g])
    }
}

impl SpanId {
    /// Makes an id. `None` for zero.
    #[must_use]
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl TraceParent {
    /// Parses the value of `traceparent`. Later versions than 00 are read as far as version 00 reaches.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(TRACEPARENT_BYTES)?;
        let [version] = hex_bytes(&known[..2])?;
        let may_go_on = rest.is_empty() || (version > 0 && rest[0] == b'-');
        let is_parted = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if version == 0xff || !may_go_on || !is_parted {
            return None;
        }
        let [flags] = hex_bytes(&known[53..])?;
        Some(Self {
            trace: TraceId::new(hex_bytes(&known[3..35])?)?,
            span: SpanId::new(hex_bytes(&known[36..52])?)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// Returns the value of `traceparent`.
    #[must_use]
    pub fn write(&self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&self.trace.0, &mut text[3..35]);
        write_hex(&self.span.0, &mut text[36..52]);
        if self.is_sampled {
            text[54] = b'1';
        }
        text
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses lower-case digits, two for each byte.
fn hex_bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (text.len() == 2 * N).then_some(bytes)
}

fn write_hex(bytes: &[u8], text: &mut [u8]) {
    for (byte, pair) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_written_parent_is_the_one_that_was_read() {
        let parent = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert!(parent.is_sampled);
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.write(), VALID.as_bytes());
    }

    #[test]
    fn other_flags_than_the_sampled_one_are_dropped() {
        let parent = TraceParent::parse(VALID.replace("-01", "-fe").as_bytes()).unwrap();
        assert!(!parent.is_sampled);
        assert!(parent.write().ends_with(b"-00"));
    }

    #[test]
    fn later_versions_are_read_as_far_as_the_first_one_reaches() {
        let check = |value: String, is_read: bool| {
            assert_eq!(TraceParent::parse(value.as_bytes()).is_some(), is_read, "{value}");
        };
        check(VALID.replacen("00", "cc", 1), true);
        check(format!("{}-what", VALID.replacen("00", "01", 1)), true);
        check(format!("{}what", VALID.replacen("00", "01", 1)), false);
        check(format!("{VALID}-what"), false);
        check(VALID.replacen("00", "ff", 1), false);
    }

    #[test]
    fn malformed_parents_are_not_read() {
        for value in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        ] {
            assert_eq!(TraceParent::parse(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_value_makes_the_parser_panic(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&value);
        }

        #[test]
        fn every_parent_survives_its_header(
            trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), is_sampled in any::<bool>(),
        ) {
            if let (Some(trace), Some(span)) = (TraceId::new(trace), SpanId::new(span)) {
                let parent = TraceParent { trace, span, is_sampled };
                prop_assert_eq!(TraceParent::parse(&parent.write()), Some(parent));
            }
        }
    }
}
