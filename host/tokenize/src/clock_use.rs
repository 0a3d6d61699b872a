//! Use of the clock by a template: `strftime_now`, and how often the text changes.

use std::time::SystemTime;

use crate::template::seconds;

/// Frequency at which the text of a template changes with the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockUse {
    Never,
    /// At most once a day.
    Daily,
    Often,
}

const FUNCTION: &str = "strftime_now";
const SECONDS_A_DAY: i64 = 86_400;

impl ClockUse {
    /// Detects the use in the source of a template.
    pub(crate) fn of(source: &str) -> Self {
        let mut uses = Self::Never;
        for (at, _) in source.match_indices(FUNCTION) {
            let after = source[at + FUNCTION.len()..].trim_start();
            if after.starts_with("is defined") || after.starts_with("is not defined") {
                continue;
            }
            match after.strip_prefix('(').and_then(format) {
                Some(format) if is_of_days(format) => uses = Self::Daily,
                _ => return Self::Often,
            }
        }
        uses
    }

    /// Returns the day by which renderings differ, 0 if they do not; `None` if they differ within a day.
    pub(crate) fn day(self, now: SystemTime) -> Option<u64> {
        match self {
            Self::Never => Some(0),
            Self::Daily => u64::try_from(seconds(now) / SECONDS_A_DAY).ok(),
            Self::Often => None,
        }
    }
}

/// Returns the text that a call begins with.
fn format(call: &str) -> Option<&str> {
    let call = call.trim_start();
    let quote = call.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (format, _) = call[1..].split_once(quote)?;
    Some(format)
}

fn is_of_days(format: &str) -> bool {
    let mut directives = format.split('%').skip(1);
    directives.all(|directive| {
        let directive = directive.trim_start_matches('-');
        directive.starts_with([
            'a', 'A', 'b', 'B', 'd', 'D', 'e', 'F', 'j', 'm', 'u', 'w', 'x', 'y', 'Y',
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dates_change_daily() {
        for (source, expected) in [
            ("{{ messages }}", ClockUse::Never),
            ("{% if strftime_now is defined %}{% endif %}", ClockUse::Never),
            ("{{ strftime_now('%d %b %Y') }}", ClockUse::Daily),
            (
                "{% if strftime_now is defined %}{{ strftime_now(\"%-d.%m.%y\") }}",
                ClockUse::Daily,
            ),
            (
                "{{ strftime_now('%Y') }}{{ strftime_now('%H:%M') }}",
                ClockUse::Often,
            ),
            ("{{ strftime_now(f) }}", ClockUse::Often),
            ("{% set f = strftime_now %}", ClockUse::Often),
        ] {
            assert_eq!(ClockUse::of(source), expected, "{source}");
        }
    }
}
