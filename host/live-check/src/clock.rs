//! Clock difference of a worker, from the `Date` of its answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the least difference in seconds (positive: the worker is ahead) that explains a `Date` in the reply to a
/// request, `sent` at that time, that `took` so long. A `Date` has whole seconds: the worker's clock was anywhere
/// within that second, at any time of the exchange.
pub(crate) fn skew(date: &str, sent: SystemTime, took: Duration) -> Option<f64> {
    let seconds = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64());
    let stated = seconds(httpdate::parse_http_date(date).ok()?)?;
    let sent = seconds(sent)?;
    let (least, most) = (stated - (sent + took.as_secs_f64()), stated + 1.0 - sent);
    Some(if least > 0.0 {
        least
    } else if most < 0.0 {
        most
    } else {
        0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-01-01 00:00:00 UTC.
    const DATE: &str = "Wed, 01 Jan 2025 00:00:00 GMT";
    const AT: f64 = 1_735_689_600.0;

    #[track_caller]
    fn check(sent: f64, took: f64, expected: Option<f64>) {
        let sent = UNIX_EPOCH + Duration::from_secs_f64(AT + sent);
        let found = skew(DATE, sent, Duration::from_secs_f64(took));
        let is_same = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() < 1e-3,
            (found, expected) => found == expected,
        };
        assert!(is_same, "{found:?}, not {expected:?}");
    }

    #[test]
    fn the_second_of_the_date_and_the_time_of_the_exchange_are_no_skew() {
        check(0.5, 0.1, Some(0.0));
        check(0.99, 0.0, Some(0.0));
        check(-3.0, 3.5, Some(0.0));
    }

    #[test]
    fn a_clock_difference_is_the_least_that_explains_the_date() {
        check(-60.0, 0.5, Some(59.5));
        check(61.0, 0.5, Some(-60.0));
    }

    #[test]
    fn an_invalid_date_gives_no_difference() {
        assert_eq!(skew("yesterday", SystemTime::now(), Duration::ZERO), None);
    }
}
