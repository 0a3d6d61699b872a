//! Greeting: the first 64 bytes of either side.

use super::fault::Fault;

/// Length of a greeting.
pub(super) const GREETING: usize = 64;
const SIGNATURE_START: u8 = 0xff;
const SIGNATURE_END: u8 = 0x7f;
const VERSION: u8 = 3;
const SIGNATURE_END_AT: usize = 9;
const VERSION_AT: usize = 10;
const MECHANISM_AT: usize = 12;
const MECHANISM_WIDTH: usize = 20;

/// Returns a client's greeting of a mechanism, in ZMTP 3.0: peers of later minor versions accept it.
pub(super) fn greeting(mechanism: &str) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[0] = SIGNATURE_START;
    // Versions before 3 read a length here, and find no older version in the following bytes.
    bytes[SIGNATURE_END_AT - 1] = 1;
    bytes[SIGNATURE_END_AT] = SIGNATURE_END;
    bytes[VERSION_AT] = VERSION;
    for (place, letter) in bytes[MECHANISM_AT..].iter_mut().zip(mechanism.bytes()) {
        *place = letter;
    }
    bytes
}

/// Checks the received part of a peer's greeting.
pub(super) fn check_greeting(bytes: &[u8], mechanism: &str) -> Result<(), Fault> {
    let is = |at: usize, fits: fn(u8) -> bool| bytes.get(at).is_none_or(|&byte| fits(byte));
    let is_zmtp = is(0, |byte| byte == SIGNATURE_START)
        && is(SIGNATURE_END_AT, |byte| byte == SIGNATURE_END)
        && is(VERSION_AT, |byte| byte >= VERSION);
    if !is_zmtp {
        return Err(Fault::NotZmtp);
    }
    let Some(named) = bytes.get(MECHANISM_AT..MECHANISM_AT + MECHANISM_WIDTH) else {
        return Ok(());
    };
    let mut wanted = [0; MECHANISM_WIDTH];
    wanted[..mechanism.len()].copy_from_slice(mechanism.as_bytes());
    if named == wanted {
        Ok(())
    } else {
        Err(Fault::Mechanism)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_accepted_by_the_same_mechanism_only() {
        let bytes = greeting("CURVE");
        assert_eq!(check_greeting(&bytes, "CURVE"), Ok(()));
        assert_eq!(check_greeting(&bytes, "NULL"), Err(Fault::Mechanism));
    }

    #[test]
    fn a_peer_of_another_protocol_is_recognised_by_its_first_byte() {
        assert_eq!(check_greeting(b"H", "NULL"), Err(Fault::NotZmtp));
        assert_eq!(check_greeting(b"", "NULL"), Ok(()));
        let mut old = greeting("NULL");
        old[VERSION_AT] = 1;
        assert_eq!(check_greeting(&old, "NULL"), Err(Fault::NotZmtp));
    }
}
