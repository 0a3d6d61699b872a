//! Dates in templates, in the form of Python's `strftime` and in UTC, the time zone of engines in containers.

use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Formats `seconds` since 1970. Returns `None` for directives that templates do not use.
pub(crate) fn strftime(format: &str, seconds: i64) -> Option<String> {
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let weekday = usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0);
    let month_name = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let written = match chars.next() {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year.rem_euclid(100)),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:2}"),
            Some('B') => out.write_str(month_name),
            Some('b' | 'h') => out.write_str(&month_name[..3]),
            Some('A') => out.write_str(DAYS[weekday]),
            Some('a') => out.write_str(&DAYS[weekday][..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => out.write_str(if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('j') => write!(out, "{:03}", days - first_of(year) + 1),
            Some('F') => write!(out, "{year}-{month:02}-{day:02}"),
            Some('T' | 'X') => write!(out, "{hour:02}:{minute:02}:{:02}", second % 60),
            // An extension of glibc: without padding.
            Some('-') => match chars.next() {
                Some('d') => write!(out, "{day}"),
                Some('m') => write!(out, "{month}"),
                Some('H') => write!(out, "{hour}"),
                Some('M') => write!(out, "{minute}"),
                Some('y') => write!(out, "{}", year.rem_euclid(100)),
                _ => return None,
            },
            Some('R') => write!(out, "{hour:02}:{minute:02}"),
            Some('u') => write!(out, "{}", if weekday == 0 { 7 } else { weekday }),
            Some('w') => write!(out, "{weekday}"),
            Some('D' | 'x') => write!(out, "{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            // Python's date has no time zone.
            Some('Z' | 'z') => Ok(()),
            Some('%') => out.write_str("%"),
            _ => return None,
        };
        written.expect("text takes everything");
    }
    Some(out)
}

/// Returns year, month and day of a day counted from 1970 in the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the first of January, counted from 1970.
fn first_of(year: i64) -> i64 {
    let before = year - 1;
    365 * (year - 1970) + (before / 4 - before / 100 + before / 400) - 477
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendars() {
        for (seconds, expected) in [
            (0, "1970-01-01 Thursday 001"),
            (951_782_400, "2000-02-29 Tuesday 060"),
            (1_709_251_199, "2024-02-29 Thursday 060"),
            (1_735_603_200, "2024-12-31 Tuesday 366"),
            (4_102_444_800, "2100-01-01 Friday 001"),
        ] {
            assert_eq!(strftime("%Y-%m-%d %A %j", seconds).unwrap(), expected);
        }
        assert_eq!(
            strftime("%d %b %y, %I:%M %p %-d %%", 1_709_251_199).unwrap(),
            "29 Feb 24, 11:59 PM 29 %"
        );
        assert_eq!(strftime("%D %w %u%Z", 951_782_400).unwrap(), "02/29/00 2 2");
        for unknown in ["%f", "%s", "%", "%-Q"] {
            assert_eq!(strftime(unknown, 0), None);
        }
    }
}
