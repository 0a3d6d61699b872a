//! Rate-limit headers (`x-ratelimit-*`) in OpenAI's names and formats.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::limits::Level;

/// Names of the limit, the remaining amount, and the time until it is full again.
pub(super) type Names = [HeaderName; 3];

pub(super) const REQUESTS: Names = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
pub(super) const TOKENS: Names = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

pub(super) fn set(names: &Names, headers: &mut HeaderMap, limit: u32, level: Level) {
    let [of_limit, left, reset] = names;
    headers.insert(of_limit, limit.into());
    headers.insert(left, level.left.into());
    let reset_in = HeaderValue::try_from(time(level.full_in));
    headers.insert(reset, reset_in.expect("digits and letters make a header value"));
}

/// Formats a time as in `6m0s`, `1s`, `20ms`.
fn time(time: Duration) -> String {
    let ms = time.as_millis();
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let mut text = String::new();
    // Writing to a string cannot fail.
    if minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let (seconds, thousandths) = (rest / 1_000, rest % 1_000);
    let _ = match thousandths {
        0 => write!(text, "{seconds}s"),
        _ => write!(text, "{seconds}.{thousandths:03}s"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openai_does() {
        let check = |ms, expected: &str| assert_eq!(time(Duration::from_millis(ms)), expected);
        check(0, "0ms");
        check(20, "20ms");
        check(1_000, "1s");
        check(8_640, "8.640s");
        check(360_000, "6m0s");
        check(61_005, "1m1.005s");
    }
}
