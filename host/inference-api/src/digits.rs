//! Digits, eight at a time: the ids of a long prompt are tens of thousands of them.
//!
//! After D. Lemire, "Quickly parsing eight digits" (2022), and the carry that tells which of eight bytes is no digit.

const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Eight bytes of text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Eight {
    /// Each less `'0'`, where it is a digit.
    values: u64,
    /// How many of the first are digits.
    pub(crate) digits: u32,
}

impl Eight {
    /// The first eight of these bytes, where there are so many.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let values = u64::from_le_bytes(*text.first_chunk()?) ^ ZEROS;
        // Adding 0x76 carries 10 and above into the top bit. It may carry on into later bytes; the first is right.
        let others =
            (values.wrapping_add(u64::from_le_bytes([0x76; 8])) | values) & u64::from_le_bytes([0x80; 8]);
        let digits = others.trailing_zeros() / 8;
        Some(Self { values, digits })
    }

    /// What the digits say, where there is one at least.
    pub(crate) fn number(self) -> u64 {
        // The first digit comes to stand behind zeros, where text has it before what follows.
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
        fn a_number_and_what_follows_it_are_told_apart(number in 0_u32..100_000_000, after in "[^0-9][ -~é0-9]{0,8}") {
            let text = format!("{number}{after}        ");
            let eight = Eight::of(text.as_bytes()).unwrap();
            prop_assert_eq!(eight.digits as usize, number.to_string().len());
            prop_assert_eq!(eight.number(), u64::from(number));
        }

        #[test]
        fn any_bytes_have_as_many_digits_as_they_begin_with(bytes in any::<[u8; 8]>()) {
            let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            prop_assert_eq!(Eight::of(&bytes).unwrap().digits as usize, digits);
        }
    }

    #[test]
    fn fewer_bytes_are_none() {
        assert!(Eight::of(b"1234567").is_none());
    }
}
