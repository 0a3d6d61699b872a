//! Format of a moment by RFC 3339, in UTC with milliseconds.

use std::time::SystemTime;

use serde::Serializer;

const DAY_SECONDS: u64 = 86_400;

/// Serializes a moment, such as `2026-11-23T16:41:35.012Z`.
pub(super) fn serialize<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}", rfc3339(*at)))
}

/// Formats a moment. Moments before 1970 count as its beginning.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let second = seconds % DAY_SECONDS;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Returns year, month and day of a number of days since 1970, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years begin on the first of March, so that a leap day ends a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// By `date -u -d @SECONDS +%FT%T`.
    #[test]
    fn a_moment_is_formatted_in_utc_with_milliseconds() {
        let check = |milliseconds, expected| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            assert_eq!(rfc3339(at), expected);
        };
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z");
        check(1_709_164_800_000, "2024-02-29T00:00:00.000Z");
        check(1_735_689_599_012, "2024-12-31T23:59:59.012Z");
        check(1_795_452_095_500, "2026-11-23T16:41:35.500Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    }
}
