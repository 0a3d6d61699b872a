//! Z85 (ZeroMQ's RFC 32), the encoding of CURVE keys: five characters for four bytes.

const CHARACTERS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
/// Characters of a key.
const LENGTH: usize = 40;

/// Decodes a CURVE key; `None` for invalid text.
#[must_use]
pub fn key(text: &str) -> Option<[u8; 32]> {
    if text.len() != LENGTH {
        return None;
    }
    let mut key = [0; 32];
    for (bytes, characters) in key.chunks_exact_mut(4).zip(text.as_bytes().chunks_exact(5)) {
        let mut number: u32 = 0;
        for character in characters {
            let digit = CHARACTERS.iter().position(|known| known == character)?;
            number = number.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.copy_from_slice(&number.to_be_bytes());
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_zeromqs_manual_are_read() {
        let public = key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7").unwrap();
        assert_eq!(public[..4], [0x54, 0xfc, 0xba, 0x24]);
        let secret = key("JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6").unwrap();
        assert_eq!(secret[..4], [0x8e, 0x0b, 0xdd, 0x69]);
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in ["", "short", &"\"".repeat(40), &"#".repeat(40), &"0".repeat(41)] {
            assert_eq!(key(text), None, "{text}");
        }
    }
}
