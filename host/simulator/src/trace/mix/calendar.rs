//! Calendar: start times of sessions.

use std::collections::HashMap;

use super::kind::MixOptions;
use super::session::Session;
use crate::request::Request;

/// Halvings of the interval between sessions; after these it is known to a part in 10^12.
const HALVINGS: u32 = 40;

/// Returns the first `options.requests` requests of the sessions, whose starts are so far apart that these arrive at
/// the wanted rate. A trace begins without running sessions, as a recording of new ones does: its first minutes have
/// fewer later turns.
pub(super) fn arrange(sessions: Vec<Session>, options: &MixOptions) -> Vec<Request> {
    let duration_s = options.requests as f64 / options.rate_per_s;
    let interval_s = interval_s(&sessions, options.requests, duration_s);
    let mut requests = Vec::new();
    let mut start_s = 0.0;
    for (number, session) in (0..).zip(sessions) {
        start_s += session.wait * interval_s;
        for turn in session.turns {
            let at_s: f64 = start_s + turn.after_s;
            if at_s <= duration_s {
                requests.push(Request {
                    // Whole milliseconds, which the files have too.
                    at_us: (at_s * 1e3) as u64 * 1000,
                    prompt_tokens: turn.prompt_tokens,
                    output_tokens: turn.output_tokens,
                    blocks: turn.blocks,
                    session: Some(number),
                    grown_blocks: Box::default(),
                    model: "".into(),
                    after: None,
                    tenant: None,
                });
            }
        }
    }
    requests.sort_by_key(|request| request.at_us);
    requests.truncate(options.requests);
    number_blocks(&mut requests);
    requests
}

/// Returns the longest mean interval between the starts of sessions with which enough requests arrive in time.
fn interval_s(sessions: &[Session], requests: usize, duration_s: f64) -> f64 {
    let (mut enough, mut too_few) = (0.0, duration_s);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(enough, too_few);
        if arriving(sessions, middle, duration_s) >= requests {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    enough
}

fn arriving(sessions: &[Session], interval_s: f64, duration_s: f64) -> usize {
    let mut start_s = 0.0;
    let mut count = 0;
    for session in sessions {
        start_s += session.wait * interval_s;
        if start_s > duration_s {
            break;
        }
        count += session
            .turns
            .iter()
            .filter(|turn| start_s + turn.after_s <= duration_s)
            .count();
    }
    count
}

/// Ids count up from 0 in the order in which they are first seen.
fn number_blocks(requests: &mut [Request]) {
    let mut numbers = HashMap::new();
    for block in requests.iter_mut().flat_map(|request| &mut request.blocks) {
        let next = numbers.len() as u64;
        *block = *numbers.entry(*block).or_insert(next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::Turn;
    use super::*;

    fn sessions(count: usize, turns: usize) -> Vec<Session> {
        let turn = |index: usize| Turn {
            after_s: index as f64 * 10.0,
            prompt_tokens: 600,
            output_tokens: 1,
            blocks: Box::new([70, 80 + index as u64]),
        };
        let session = |_| Session {
            wait: 1.0,
            turns: (0..turns).map(turn).collect(),
        };
        (0..count).map(session).collect()
    }

    #[test]
    fn the_configured_number_of_requests_arrives_at_the_configured_rate() {
        for turns in [1, 5] {
            let options = MixOptions {
                seed: 0,
                requests: 200,
                rate_per_s: 2.0,
            };
            let requests = arrange(sessions(200, turns), &options);
            assert_eq!(requests.len(), 200);
            assert!(requests.is_sorted_by_key(|request| request.at_us));
            let last_s = requests[199].at_us / 1_000_000;
            assert!(
                (95..=100).contains(&last_s),
                "{turns} turns: the last one after {last_s} s"
            );
        }
    }

    #[test]
    fn a_session_keeps_its_pauses_and_its_number() {
        let options = MixOptions {
            seed: 0,
            requests: 4,
            rate_per_s: 0.1,
        };
        let requests = arrange(sessions(4, 2), &options);
        let first: Vec<_> = requests
            .iter()
            .filter(|request| request.session == Some(0))
            .collect();
        assert_eq!(first[1].at_us - first[0].at_us, 10_000_000);
    }

    #[test]
    fn ids_count_up_from_0() {
        let options = MixOptions {
            seed: 0,
            requests: 2,
            rate_per_s: 0.1,
        };
        let requests = arrange(sessions(2, 1), &options);
        assert!(requests.iter().all(|request| *request.blocks == [0, 1]));
    }
}
