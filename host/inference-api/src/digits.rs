//! Digit parser, eight digits at a time: a long prompt has tens of thousands of ids.
//!
//! After D. Lemire, "Quickly parsing eight digits" (2022). A carry marks the first byte that is not a digit.

const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Eight bytes of text in a word (SWAR).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DigitWord {
    /// Each byte minus `'0'`, where it is a digit.
    values: u64,
    /// Number of leading digits.
    pub(crate) digits: u32,
}

impl DigitWord {
    /// Returns the first eight bytes, if there are so many.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let values = u64::from_le_bytes(*text.first_chunk()?) ^ ZEROS;
        // Adding 0x76 carries values of 10 and above into the top bit. A carry may affect later bytes, but not the
        // first.
        let others =
            (values.wrapping_add(u64::from_le_bytes([0x76; 8])) | values) & u64::from_le_bytes([0x80; 8]);
        let digits = others.trailing_zeros() / 8;
        Some(Self { values, digits })
    }

    /// Returns the number of the leading digits, of which there is at least one.
    pub(crate) fn number(self) -> u64 {
        // Shifts the first digit behind zeros, in place of the text after the digits.
        let values = self.values << (64 - 8 * self.digits);
        let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
        let every_fourth = 0x0000_00ff_0000_00ff;
        let upper = (pairs & every_fourth).wrapping_mul(100 + (1_000_000 << 32));
        let lower = (pairs >> 16 & every_fourth).wrapping_mul(1 + (10_000 << 32));
        upper.wrapping_add(lower) >> 32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_and_what_follows_it_are_distinguished(number in 0_u32..100_000_000, after in "[^0-9][ -~é0-9]{0,8}") {
            let text = format!("{number}{after}        ");
            let eight = DigitWord::of(text.as_bytes()).unwrap();
            prop_assert_eq!(eight.digits as usize, number.to_string().len());
            prop_assert_eq!(eight.number(), u64::from(number));
        }

        #[test]
        fn any_bytes_have_as_many_digits_as_they_begin_with(bytes in any::<[u8; 8]>()) {
            let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            prop_assert_eq!(DigitWord::of(&bytes).unwrap().digits as usize, digits);
        }
    }

    #[test]
    fn fewer_bytes_are_none() {
        assert!(DigitWord::of(b"1234567").is_none());
    }
}
