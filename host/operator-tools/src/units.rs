//! Numbers for people: the unit that keeps them short, and a dash for unknown ones.

use std::time::Duration;

use serde_json::Value;

/// Text of an unknown value.
pub const UNKNOWN: &str = "-";

/// Formats bytes, in KiB, MiB or GiB.
#[must_use]
pub fn size(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    match kib {
        _ if kib < 1024.0 => format!("{kib:.1} KiB"),
        _ if kib < 1024.0 * 1024.0 => format!("{:.1} MiB", kib / 1024.0),
        _ => format!("{:.1} GiB", kib / 1024.0 / 1024.0),
    }
}

/// Formats a time, in the unit that keeps it short.
#[must_use]
pub fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        _ if us < 1_000.0 => format!("{us:.1} us"),
        _ if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// Returns a time in microseconds with one decimal, for JSON.
#[must_use]
pub fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// Formats an age in whole seconds, minutes or hours.
#[must_use]
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Formats a text of a page.
#[must_use]
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => UNKNOWN.to_owned(),
        Value::String(text) if text.is_empty() => UNKNOWN.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a number of a page: whole ones and large ones without decimals.
#[must_use]
pub fn number(value: &Value) -> String {
    match value.as_f64() {
        None => UNKNOWN.to_owned(),
        Some(number) if number.fract() == 0.0 || number.abs() >= 100.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.1}"),
    }
}

/// Formats seconds of a page.
#[must_use]
pub fn seconds(value: &Value) -> String {
    match value.as_f64() {
        None => UNKNOWN.to_owned(),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.1} s"),
        Some(seconds) => age(seconds as u64),
    }
}

/// Formats milliseconds of a page.
#[must_use]
pub fn millis(value: &Value) -> String {
    seconds(&value.as_f64().map_or(Value::Null, |ms| (ms / 1e3).into()))
}

/// Formats a share of a page as a percentage.
#[must_use]
pub fn percent(value: &Value) -> String {
    match value.as_f64() {
        None => UNKNOWN.to_owned(),
        Some(share) => {
            let percent = format!("{:.1}", share * 100.0);
            format!("{} %", percent.trim_end_matches(".0"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn units_keep_numbers_short() {
        assert_eq!(size(48_844), "47.7 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
        assert_eq!(time(Duration::from_nanos(470)), "0.5 us");
        assert_eq!(time(Duration::from_micros(12_345)), "12.3 ms");
        assert!((micros(Duration::from_nanos(1_234)) - 1.2).abs() < 1e-9);
        assert_eq!(age(7200), "2 h");
    }

    #[test]
    fn values_of_pages_are_short_and_unknown_ones_are_dashes() {
        let null = Value::Null;
        assert_eq!(
            [text(&null), number(&null), seconds(&null), percent(&null)],
            ["-"; 4]
        );
        assert_eq!(
            [number(&json!(3)), number(&json!(3.25)), number(&json!(1234.5))],
            ["3", "3.2", "1234"]
        );
        assert_eq!(
            [
                seconds(&json!(0.0123)),
                seconds(&json!(2.5)),
                seconds(&json!(600))
            ],
            ["12 ms", "2.5 s", "10 min"]
        );
        assert_eq!(millis(&json!(250)), "250 ms");
        assert_eq!([percent(&json!(0.5)), percent(&json!(0.405))], ["50 %", "40.5 %"]);
    }
}
