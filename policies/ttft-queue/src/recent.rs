//! Prompts sent lately to each worker that writes answers. Their answers are young: a stall is a large part of a short
//! one's time, and the policy does not know which of them are short.
//!
//! The state of the router has one value with an entry for each worker: its id, the number of prompts, which halves
//! every 1.94 s, and the time of that number. Two decisions at once may lose one of two prompts.

use conductor_policy_sdk::{Host, Row, WorkerId};

/// Key of the value in the router's state.
const KEY: &str = "recent";
/// Time in which the number of prompts halves, in milliseconds.
const HALF_MS: u32 = 1_940;
/// Age of a forgotten entry: less than a hundredth is left.
const FORGOTTEN_MS: u32 = 7 * HALF_MS;
/// Prompts of a forgotten entry. Each decision that adds a prompt gives all entries its time, so that none becomes old
/// while requests arrive.
const FORGOTTEN: f32 = 1e-6;
/// Time by which another decision's clock may be ahead, in milliseconds.
const AHEAD_MS: u32 = 1_000;
/// Maximum number of workers, so that the value has at most 12 KiB of the 16 that the state allows.
const MOST: usize = 1_024;
/// Bytes of an entry: the worker's id, the prompts, the milliseconds of the clock.
const BYTES: usize = 12;

/// Recent prompts of each worker, by its id in ascending order, at the time of one decision.
#[derive(Debug)]
pub(crate) struct RecentPrompts {
    now_ms: u32,
    of: Vec<(WorkerId, f32)>,
}

impl RecentPrompts {
    /// Returns no prompts, for pools without workers that write answers.
    pub(crate) fn none() -> Self {
        Self {
            now_ms: 0,
            of: Vec::new(),
        }
    }

    /// Reads the prompts from the state.
    pub(crate) fn read(host: &impl Host) -> Self {
        let now_ms = (host.now_us() / 1_000) as u32;
        let bytes = host.state(KEY).unwrap_or_default();
        Self {
            now_ms,
            of: entries_left(&bytes, now_ms),
        }
    }

    /// Returns the recent prompts of each worker, in the order of the ids, for two workers at a time.
    pub(crate) fn each(&self, ids: &[WorkerId]) -> Vec<f64> {
        if !ids.is_sorted() {
            let prompts = ids
                .iter()
                .map(|id| self.find(*id).map_or(0.0, |at| self.of[at].1.into()));
            return prompts.chain([0.0]).collect();
        }
        // Both lists are in ascending order.
        let mut prompts = vec![0.0; ids.len() + 1];
        let mut row = 0;
        for (id, recent) in &self.of {
            row += ids[row..].iter().take_while(|other| *other < id).count();
            if ids.get(row) == Some(id) {
                prompts[row] = (*recent).into();
            }
        }
        prompts
    }

    /// Adds one for the worker, and writes the state.
    pub(crate) fn add(mut self, row: &Row<'_>, host: &impl Host) {
        match self.find(row.id()) {
            Ok(at) => self.of[at].1 += 1.0,
            // The fleet is too large: the new worker has no price.
            Err(_) if self.of.len() >= MOST => {}
            Err(at) => self.of.insert(at, (row.id(), 1.0)),
        }
        let mut bytes = Vec::with_capacity(self.of.len() * BYTES);
        for (id, prompts) in &self.of {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&prompts.to_le_bytes());
            bytes.extend_from_slice(&self.now_ms.to_le_bytes());
        }
        // Without a free key in the state no worker has recent prompts.
        let _ = host.set_state(KEY, &bytes);
    }

    fn find(&self, id: WorkerId) -> Result<usize, usize> {
        self.of.binary_search_by_key(&id, |(id, _)| *id)
    }
}

/// Returns the workers of the entries and the rests of their prompts, without forgotten ones.
fn entries_left(bytes: &[u8], now_ms: u32) -> Vec<(WorkerId, f32)> {
    let (entries, _) = bytes.as_chunks::<BYTES>();
    let mut left = Vec::with_capacity(entries.len() + 1);
    // The entries nearly always have one time.
    let (mut same_ms, mut share) = (now_ms, 1.0);
    for entry in entries {
        let ([id, prompts, at_ms], _) = entry.as_chunks::<4>() else {
            continue;
        };
        let at_ms = u32::from_le_bytes(*at_ms);
        if at_ms != same_ms {
            (same_ms, share) = (at_ms, share_at(at_ms, now_ms));
        }
        let prompts = f32::from_le_bytes(*prompts) * share;
        if prompts > FORGOTTEN && prompts.is_finite() {
            left.push((u32::from_le_bytes(*id), prompts));
        }
    }
    left
}

/// Returns the share that is left of an entry of that time: 0 of an old one, and of one of an earlier start of the
/// router, whose clock was another one.
fn share_at(at_ms: u32, now_ms: u32) -> f32 {
    let is_ahead = at_ms.wrapping_sub(now_ms) <= AHEAD_MS;
    let age_ms = if is_ahead { 0 } else { now_ms.wrapping_sub(at_ms) };
    if age_ms < FORGOTTEN_MS {
        share_left(age_ms)
    } else {
        0.0
    }
}

/// Returns the share that is left after this time. The shares of consecutive times multiply to that of their sum, since
/// each decision that adds a prompt multiplies all entries by such a share.
fn share_left(age_ms: u32) -> f32 {
    (-(age_ms as f32) / HALF_MS as f32).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(prompts: f32, at_ms: u32) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&7_u32.to_le_bytes());
        bytes[4..8].copy_from_slice(&prompts.to_le_bytes());
        bytes[8..].copy_from_slice(&at_ms.to_le_bytes());
        bytes
    }

    #[test]
    fn prompts_halve_in_a_fixed_time_and_are_forgotten() {
        let left = |now_ms| entries_left(&entry(2.0, 5_000), now_ms);
        assert_eq!(left(5_000), [(7, 2.0)]);
        assert_eq!(left(5_000 + HALF_MS), [(7, 1.0)]);
        assert_eq!(left(5_000 + 2 * HALF_MS), [(7, 0.5)]);
        assert_eq!(left(5_000 + FORGOTTEN_MS), []);
        assert_eq!(entries_left(&entry(1e-6, 5_000), 5_000), [], "next to nothing");
    }

    #[test]
    fn many_short_times_leave_the_share_of_one_long_time() {
        let shares = (0..HALF_MS).map(|_| share_left(1));
        let left: f32 = shares.product();
        assert!((left - 0.5).abs() < 1e-3, "{left}");
    }

    #[test]
    fn each_entry_has_its_own_time() {
        let entries = [
            entry(2.0, 5_000),
            entry(2.0, 5_000 + HALF_MS),
            entry(2.0, 5_000 + HALF_MS),
            entry(2.0, 5_000),
        ];
        let left = entries_left(entries.as_flattened(), 5_000 + HALF_MS);
        assert_eq!(left, [(7, 1.0), (7, 2.0), (7, 2.0), (7, 1.0)]);
    }

    #[test]
    fn entries_of_another_clock_are_forgotten() {
        let left = |entry: [u8; BYTES], now_ms| entries_left(&entry, now_ms);
        assert_eq!(left(entry(2.0, 5_000), 4_500), [(7, 2.0)], "another decision");
        assert_eq!(left(entry(2.0, 5_000), 3_000), [], "an earlier start");
        assert_eq!(left(entry(f32::NAN, 5_000), 5_000), []);
        let wrapped = entry(2.0, u32::MAX);
        assert_eq!(left(wrapped, HALF_MS - 1), [(7, 1.0)], "the clock wraps");
    }
}
