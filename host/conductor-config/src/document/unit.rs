//! Times and sizes with their units: `"250ms"`, `"64MiB"`. Exact integer arithmetic throughout.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Range of every timeout: zero would end everything at once, and a day is as good as no limit.
pub(crate) const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// Reason why a quantity cannot be read; each ends the sentence "`30x` ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuantityFault {
    /// Digits only.
    NoUnit,
    /// Digits, then something that is not a unit.
    UnknownUnit,
    /// No digits at the front, or more than one point.
    NoNumber,
    /// Too large to be counted.
    TooLarge,
}

/// Nanoseconds in a unit of time, smallest first.
const TIMES: &[(&str, u64)] = &[
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes in a unit of size, smallest first.
const SIZES: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads `"1.5s"`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, QuantityFault> {
    parse(text, TIMES).map(Duration::from_nanos)
}

/// Reads `"64MiB"` into bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, QuantityFault> {
    parse(text, SIZES)
}

/// Returns the shortest form of a time that can be parsed again.
pub(crate) fn show_time(time: Duration) -> String {
    if time.is_zero() {
        return "0s".to_owned();
    }
    show(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), TIMES)
}

/// Returns the shortest form of a size that can be parsed again.
pub(crate) fn show_size(bytes: u64) -> String {
    show(bytes, SIZES)
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, QuantityFault> {
    let text = text.trim();
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..unit_at], text[unit_at..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(QuantityFault::NoNumber);
    }
    if unit.is_empty() {
        return Err(QuantityFault::NoUnit);
    }
    let &(_, factor) = units
        .iter()
        .find(|&&(name, _)| name == unit)
        .ok_or(QuantityFault::UnknownUnit)?;
    let whole = whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(factor))
        .ok_or(QuantityFault::TooLarge)?;
    whole
        .checked_add(fraction_of(fraction, factor))
        .ok_or(QuantityFault::TooLarge)
}

/// Returns `0.digits` of a unit, rounded down.
fn fraction_of(digits: &str, factor: u64) -> u64 {
    let mut rest = u128::from(factor) * 1_000_000_000;
    let mut sum = 0;
    for digit in digits.bytes() {
        rest /= 10;
        sum += rest * u128::from(digit - b'0');
    }
    u64::try_from(sum / 1_000_000_000).unwrap_or(factor)
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    let exact = |&&(_, factor): &&(&str, u64)| amount.is_multiple_of(factor);
    let (name, factor) = units
        .iter()
        .rev()
        .find(exact)
        .filter(|_| amount > 0)
        .unwrap_or(&units[0]);
    format!("{}{name}", amount / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_exactly() {
        let check = |text, nanos| assert_eq!(parse_time(text), Ok(Duration::from_nanos(nanos)), "{text}");
        check("250ms", 250_000_000);
        check("1.5s", 1_500_000_000);
        check("0.0000015 s", 1_500);
        check("2h", 7_200_000_000_000);
    }

    #[test]
    fn reports_why_a_quantity_cannot_be_read() {
        let check = |text, fault| assert_eq!(parse_size(text), Err(fault), "{text}");
        check("32", QuantityFault::NoUnit);
        check("32MB", QuantityFault::UnknownUnit);
        check("MiB", QuantityFault::NoNumber);
        check("", QuantityFault::NoNumber);
        check("-1MiB", QuantityFault::NoNumber);
        check("1.2.3MiB", QuantityFault::NoNumber);
        check("99999999999999GiB", QuantityFault::TooLarge);
    }

    #[test]
    fn times_and_sizes_round_trip() {
        for text in ["1us", "50ms", "90s", "5m", "24h"] {
            assert_eq!(show_time(parse_time(text).unwrap()), text);
        }
        for text in ["1B", "1KiB", "1GiB"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        assert_eq!(show_time(Duration::ZERO), "0s");
    }
}
