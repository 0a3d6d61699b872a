//! Host functions of a [`Scenario`]: the router's rules and limits, without a router.

use super::{ROLE, Scenario};
use crate::call::WorkerId;
use crate::hash::mix;
use crate::host::{Host, Level, Role, StateError, Tier, WorkerInfo};

/// Limits of the shared state, as defined in `wit/policy.wit`.
const MAX_KEYS: usize = 4096;
const MAX_KEY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Maximum time for which a session is remembered: one day.
const LONGEST_SESSION_MS: u32 = 24 * 60 * 60 * 1000;

impl Host for Scenario {
    fn describe(&self, id: WorkerId) -> Option<WorkerInfo> {
        let worker = self.known().contains(&id).then(|| &self.workers[id as usize])?;
        Some(WorkerInfo {
            name: worker.name.clone(),
            role: worker
                .numbers
                .get(ROLE)
                .map_or(Role::Mixed, |&number| Role::of(number)),
            labels: worker.labels.clone().into_iter().collect(),
        })
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        let feature = match tier {
            Tier::Device => "prefix.device-tokens",
            Tier::Host => "prefix.host-tokens",
            Tier::Disk => "prefix.any-tokens",
        };
        if self.batch.is_some() || !self.knows_prompt() {
            return Vec::new();
        }
        self.offered_numbers(feature)
            .map(|tokens| tokens as u32)
            .collect()
    }

    fn holders(&self, tokens: u32) -> u32 {
        if self.batch.is_some() {
            return 0;
        }
        let held = self.offered_numbers("prefix.any-tokens");
        held.filter(|held| *held > 0.0 && *held >= f64::from(tokens))
            .count() as u32
    }

    fn header(&self, name: &str) -> Option<String> {
        let headers = self.batch.is_none().then_some(&self.headers)?;
        headers.get(&name.to_ascii_lowercase()).cloned()
    }

    fn model(&self) -> String {
        if self.batch.is_some() {
            String::new()
        } else {
            self.model.clone()
        }
    }

    fn path(&self) -> String {
        let path = if self.batch.is_some() {
            ""
        } else {
            "/v1/chat/completions"
        };
        path.to_owned()
    }

    fn log(&self, level: Level, message: &str) {
        self.logged.borrow_mut().push((level, message.to_owned()));
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn random(&self) -> u64 {
        self.drawn.set(self.drawn.get() + 1);
        let seed = mix(self.request.seq, u64::from(self.request.attempt));
        mix(seed, self.drawn.get())
    }

    fn state(&self, key: &str) -> Option<Vec<u8>> {
        self.state.borrow().get(key).cloned()
    }

    fn set_state(&self, key: &str, value: &[u8]) -> Result<(), StateError> {
        let mut state = self.state.borrow_mut();
        if key.len() > MAX_KEY_BYTES {
            return Err(StateError::KeyTooLong);
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(StateError::ValueTooLong);
        }
        if state.len() >= MAX_KEYS && !state.contains_key(key) {
            return Err(StateError::Full);
        }
        state.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn add_state(&self, key: &str, by: i64) -> Result<i64, StateError> {
        let before = match self.state(key) {
            None => 0,
            Some(bytes) => i64::from_le_bytes(bytes.try_into().map_err(|_| StateError::NotACounter)?),
        };
        let after = before.wrapping_add(by);
        self.set_state(key, &after.to_le_bytes())?;
        Ok(after)
    }

    fn delete_state(&self, key: &str) {
        self.state.borrow_mut().remove(key);
    }

    fn recall_session(&self) -> Option<usize> {
        let session = self.at_hand()?;
        let (worker, until_us) = *self.sessions.borrow().get(&session)?;
        if until_us <= self.now_us {
            self.sessions.borrow_mut().remove(&session);
            return None;
        }
        self.offered.iter().position(|&id| id == worker)
    }

    fn remember_session(&self, row: usize, ttl_ms: u32) {
        if let (Some(session), Some(&worker)) = (self.at_hand(), self.offered.get(row)) {
            let until_us = self.now_us + u64::from(ttl_ms.min(LONGEST_SESSION_MS)) * 1000;
            self.sessions.borrow_mut().insert(session, (worker, until_us));
        }
    }

    fn forget_session(&self) {
        if let Some(session) = self.at_hand() {
            self.sessions.borrow_mut().remove(&session);
        }
    }

    fn wait_for(&self, row: usize, work: u32) {
        assert!(row < self.offered.len(), "the row is a candidate's");
        self.waits_for.set(Some((row, work)));
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        let of_row = |(row, id): (usize, &WorkerId)| {
            let most = most.get(row).copied();
            let of_it = self
                .waiting
                .iter()
                .filter(|(worker, _)| worker == id && most.is_some());
            of_it.fold([0, 0], |[count, sum], (_, work)| {
                let counted = if Some(*work) <= most { *work } else { 0 };
                [count + 1, sum + counted]
            })
        };
        self.offered.iter().enumerate().flat_map(of_row).collect()
    }
}
