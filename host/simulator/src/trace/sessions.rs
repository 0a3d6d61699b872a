//! Sessions of a trace: turns of each request, and tenants for traces that have none.

use std::collections::HashMap;

use routing::SplitMix64;

use crate::request::{Request, Trace};

/// Sequence of a seed from which tenants are drawn.
const STREAM: u32 = 0x7e4a;
/// Complete blocks below which a prompt is no former turn of another: it may be a common system prompt.
const LEAST_BLOCKS: usize = 2;

impl Trace {
    /// Returns the turn of each request in its session, from 1.
    ///
    /// A request without a session continues the latest earlier prompt that it begins with, if that has at least two
    /// complete blocks.
    #[must_use]
    pub fn turns(&self) -> Vec<u32> {
        self.positions().iter().map(|position| position.turn).collect()
    }

    /// Gives each session to one of `tenants` (at least 1), the n-th with a weight of 1/n. Requests that have a tenant
    /// keep it.
    pub fn assign_tenants(&mut self, tenants: u32, seed: u64) {
        let weights = (1..=tenants.max(1)).map(|rank| 1.0 / f64::from(rank));
        let whole: f64 = weights.clone().sum();
        let positions = self.positions();
        for (request, position) in self.requests.iter_mut().zip(positions) {
            let share = share_of(seed, position.first as u64) * whole;
            let mut sum = 0.0;
            let drawn = weights.clone().take_while(|weight| {
                sum += weight;
                sum <= share
            });
            request.tenant.get_or_insert(drawn.count() as u32);
        }
    }

    fn positions(&self) -> Vec<Position> {
        let mut sessions: HashMap<u64, Position> = HashMap::new();
        let mut ends: HashMap<u64, Position> = HashMap::new();
        let mut positions = Vec::with_capacity(self.requests.len());
        for (number, request) in self.requests.iter().enumerate() {
            let complete = self.complete_blocks(request);
            let former = match request.session {
                Some(session) => sessions.get(&session),
                None => complete.iter().rev().find_map(|block| ends.get(block)),
            };
            let position = former.map_or(
                Position {
                    first: number,
                    turn: 1,
                },
                |former| Position {
                    turn: former.turn + 1,
                    ..*former
                },
            );
            match (request.session, complete.last()) {
                (Some(session), _) => {
                    sessions.insert(session, position);
                }
                (None, Some(end)) if complete.len() >= LEAST_BLOCKS => {
                    ends.insert(*end, position);
                }
                _ => {}
            }
            positions.push(position);
        }
        positions
    }

    /// Returns the blocks of a prompt that are not cut off by its end.
    fn complete_blocks<'r>(&self, request: &'r Request) -> &'r [u64] {
        let complete = (request.prompt_tokens / self.block_tokens.max(1)) as usize;
        &request.blocks[..complete.min(request.blocks.len())]
    }
}

/// Place of a request in its session.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// First request of the session.
    first: usize,
    /// Turn, from 1.
    turn: u32,
}

/// Returns a number from 0 to 1, without 1, for a session.
fn share_of(seed: u64, session: u64) -> f64 {
    let mut random = SplitMix64::of_decision(seed ^ session.rotate_left(32), STREAM);
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(requests: &[(&[u64], Option<u64>)]) -> Trace {
        let request = |(blocks, session): &(&[u64], Option<u64>)| Request {
            at_us: 0,
            prompt_tokens: blocks.len() as u32 * 512 - 12,
            output_tokens: 1,
            blocks: (*blocks).into(),
            session: *session,
            grown_blocks: Box::default(),
            model: "".into(),
            after: None,
            tenant: None,
        };
        Trace {
            name: "test".to_owned(),
            block_tokens: 512,
            requests: requests.iter().map(request).collect(),
        }
    }

    #[test]
    fn turns_of_a_named_session_count_up() {
        let trace = trace(&[(&[1], Some(7)), (&[2], Some(8)), (&[3], Some(7)), (&[3], Some(7))]);
        assert_eq!(trace.turns(), [1, 1, 2, 3]);
    }

    #[test]
    fn without_a_name_a_prompt_continues_the_latest_one_that_it_begins_with() {
        // The last block of each is cut off, so the next turn has another one in its place.
        let trace = trace(&[
            (&[1, 2, 3], None),
            (&[1, 9, 8], None),
            (&[1, 2, 4, 5], None),
            (&[1, 2, 4, 6, 7], None),
            (&[1, 2, 10], None),
        ]);
        assert_eq!(trace.turns(), [1, 1, 2, 3, 2]);
    }

    #[test]
    fn a_prompt_of_a_system_prompt_alone_has_no_next_turn() {
        let trace = trace(&[(&[1, 2], None), (&[1, 3, 4], None)]);
        assert_eq!(trace.turns(), [1, 1]);
    }

    #[test]
    fn a_session_has_one_tenant_and_the_first_tenant_has_most_sessions() {
        let blocks: Vec<[u64; 1]> = (0..4_000).map(|number| [number]).collect();
        let requests: Vec<(&[u64], Option<u64>)> = (0..)
            .zip(&blocks)
            .map(|(number, blocks)| (&blocks[..], Some(number % 2_000)))
            .collect();
        let mut trace = trace(&requests);
        trace.requests[0].tenant = Some(99);
        trace.assign_tenants(4, 1);
        let tenant = |number: usize| trace.requests[number].tenant.unwrap();
        assert_eq!(tenant(0), 99, "its own");
        assert!((1..2_000).all(|number| tenant(number) == tenant(number + 2_000)));
        // Weights 1, 1/2, 1/3 and 1/4: 48, 24, 16 and 12 %.
        let count = |of| (1..2_000).filter(|number| tenant(*number) == of).count();
        assert!((880..1_040).contains(&count(0)), "{}", count(0));
        assert!((180..300).contains(&count(3)), "{}", count(3));
        assert_eq!(count(4), 0);
    }
}
