//! Expiry date of a certificate: the only X.509 field that the router reports.

use std::time::{Duration, SystemTime};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate (RFC 5280, section 4.1); `None` if it cannot be read.
pub(super) fn not_after(der: &[u8]) -> Option<SystemTime> {
    let (_, certificate, _) = element(der).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut body, _) = element(certificate)?;
    // Version (optional), serial number, algorithm, issuer; then the validity.
    if body.first() == Some(&VERSION) {
        body = element(body)?.2;
    }
    for _ in 0..3 {
        body = element(body)?.2;
    }
    let (_, validity, _) = element(body).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, _, after) = element(validity)?;
    let (tag, text, _) = element(after)?;
    time(tag, text)
}

/// Splits a DER element into tag, content and rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let is_sane = (1..=4).contains(&digits.len());
        let length = digits
            .iter()
            .fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
        (is_sane.then_some(length)?, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses `YYMMDDHHMMSSZ`, also with a four-digit year.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            (year + if year < 50 { 2_000 } else { 1_900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| number(rest.get(at..at + 2)?);
    let (month, day) = (part(0)?, part(2)?);
    let seconds = part(4)? * 3_600 + part(6)? * 60 + part(8)?;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_since_1970(year, month, day);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + seconds))
}

/// Returns the day number in the Gregorian calendar. Years start in March, so a leap day is a year's last day.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // 1 January 1970, counted the same way.
    days - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tag: u8, text: &str, unix: Option<u64>) {
        let expected = unix.map(|unix| SystemTime::UNIX_EPOCH + Duration::from_secs(unix));
        assert_eq!(time(tag, text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn both_time_forms_are_parsed() {
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "240229120001Z", Some(1_709_208_001));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000));
        check(GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400));
        for bad in ["", "Z", "2402Z", "241301000000Z", "24022912000Z", "240229120001"] {
            check(UTC_TIME, bad, None);
        }
    }

    #[test]
    fn malformed_certificates_have_no_expiry() {
        for bad in [
            &b""[..],
            b"\x30",
            b"\x30\x05\x30\x80",
            b"\x30\x84\xff\xff\xff\xff",
        ] {
            assert_eq!(not_after(bad), None);
        }
    }
}
