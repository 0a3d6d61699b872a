//! Rules for replies of a collector: which are accepted, repeated or final.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

/// Most posts of one batch.
pub(crate) const MOST_POSTS: u32 = 5;
/// Pause after the first failed post, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reply of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Accepted, but for the described part.
    Accepted(Option<String>),
    /// To be sent again, after that pause where one is stated.
    Retry(Option<Duration>),
    /// Refused for good.
    Refused(StatusCode),
}

/// Returns the meaning of a status.
pub(crate) fn judge(status: StatusCode) -> Reply {
    match status.as_u16() {
        200..=299 => Reply::Accepted(None),
        429 | 502..=504 => Reply::Retry(None),
        _ => Reply::Refused(status),
    }
}

/// Returns the stated pause, where it is a number of seconds.
pub(crate) fn retry_after(value: Option<&HeaderValue>) -> Option<Duration> {
    let seconds = value?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Returns the pause after that many failed posts.
pub(crate) fn pause(failed: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << failed.saturating_sub(1).min(8))
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overload_and_gateway_errors_are_repeated() {
        let repeats = |status: u16| judge(StatusCode::from_u16(status).unwrap()) == Reply::Retry(None);
        let repeated: Vec<_> = (200..600).filter(|status| repeats(*status)).collect();
        assert_eq!(repeated, [429, 502, 503, 504]);
        assert_eq!(judge(StatusCode::ACCEPTED), Reply::Accepted(None));
        assert_eq!(
            judge(StatusCode::BAD_REQUEST),
            Reply::Refused(StatusCode::BAD_REQUEST)
        );
    }

    #[test]
    fn pauses_double_up_to_the_longest_one() {
        let seconds: Vec<_> = (1..8).map(|failed| pause(failed).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_stated_pause_is_bounded() {
        let after = |value: &'static str| retry_after(Some(&HeaderValue::from_static(value)));
        assert_eq!(after("3"), Some(Duration::from_secs(3)));
        assert_eq!(after("86400"), Some(LONGEST_PAUSE));
        assert_eq!(after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after(None), None);
    }
}
