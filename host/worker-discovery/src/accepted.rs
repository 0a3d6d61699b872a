//! Accepted workers of a source: removals of many workers at once need confirmation by several answers in a row.
//!
//! A broken source must not empty a pool. So if an answer misses half of the workers or more, a worker goes only once a
//! number of answers in a row miss it. New workers are accepted at once.

use std::collections::BTreeMap;

use crate::worker::DiscoveredWorker;

/// Accepted workers of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedWorkers {
    /// Answers in a row that must miss a worker while half or more are missing.
    confirm: u32,
    /// In the order of their URLs. `None` before the first answer.
    workers: Option<Vec<DiscoveredWorker>>,
    /// Answers in a row that missed each worker whose removal is unconfirmed, by URL.
    missed: BTreeMap<String, u32>,
    /// Set if the next answer is accepted in full.
    accepts_next: bool,
}

/// Effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedChange {
    /// Set if the accepted workers changed.
    pub is_changed: bool,
    /// Number of workers that the answer misses and that stay for now.
    pub unconfirmed: usize,
}

impl AcceptedWorkers {
    /// Returns the state before the first answer. `confirm` is the number of answers in a row that must miss a worker
    /// while half or more are missing; 1 accepts every answer.
    #[must_use]
    pub fn new(confirm: u32) -> Self {
        Self {
            confirm: confirm.max(1),
            workers: None,
            missed: BTreeMap::new(),
            accepts_next: false,
        }
    }

    /// Lets the next answer be accepted in full: it comes from another place.
    pub fn accept_next(&mut self) {
        self.accepts_next = true;
    }

    /// Changes the number of answers that must miss a worker.
    pub fn set_confirm(&mut self, confirm: u32) {
        self.confirm = confirm.max(1);
    }

    /// Returns the accepted workers in the order of their URLs; `None` before the first answer.
    #[must_use]
    pub fn workers(&self) -> Option<&[DiscoveredWorker]> {
        self.workers.as_deref()
    }

    /// Returns the number of workers that the last answer missed and that stay for now.
    #[must_use]
    pub fn unconfirmed(&self) -> usize {
        self.missed.len()
    }

    /// Takes an answer: workers in the order of their URLs, each URL once.
    pub fn record(&mut self, answer: Vec<DiscoveredWorker>) -> AcceptedChange {
        let accepted = self.workers.take().unwrap_or_default();
        let is_listed = |worker: &&DiscoveredWorker| {
            let found = answer.binary_search_by(|listed| listed.url.cmp(&worker.url));
            found.is_ok()
        };
        let missing: Vec<&DiscoveredWorker> = accepted.iter().filter(|worker| !is_listed(worker)).collect();
        let is_other_place = std::mem::take(&mut self.accepts_next);
        let needs_confirmation = !is_other_place && missing.len() * 2 >= accepted.len();
        let before = std::mem::take(&mut self.missed);
        let mut next = answer;
        for worker in missing.into_iter().filter(|_| needs_confirmation) {
            let times = before.get(&worker.url).map_or(1, |times| times + 1);
            if times < self.confirm {
                next.push(worker.clone());
                self.missed.insert(worker.url.clone(), times);
            }
        }
        next.sort_by(|one, other| one.url.cmp(&other.url));
        let is_changed = next != accepted;
        self.workers = Some(next);
        AcceptedChange {
            is_changed,
            unconfirmed: self.missed.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::tests::defaults;

    fn answer(names: &str) -> Vec<DiscoveredWorker> {
        let worker = |name: char| DiscoveredWorker::at(&format!("{name}:1"), &defaults()).unwrap();
        names.chars().map(worker).collect()
    }

    /// Takes the answers in turn, and returns the accepted workers after each.
    fn accepted_after(confirm: u32, answers: &[&str]) -> Vec<String> {
        let mut accepted = AcceptedWorkers::new(confirm);
        let names = |workers: &[DiscoveredWorker]| workers.iter().map(|worker| &worker.name()[..1]).collect();
        let after = |names_of: &&str| {
            accepted.record(answer(names_of));
            names(accepted.workers().unwrap())
        };
        answers.iter().map(after).collect()
    }

    #[test]
    fn fewer_than_half_may_go_at_once() {
        assert_eq!(accepted_after(3, &["abcde", "abc"]), ["abcde", "abc"]);
    }

    #[test]
    fn half_or_more_go_once_the_answer_is_repeated() {
        assert_eq!(
            accepted_after(3, &["abcd", "ab", "ab", "ab"]),
            ["abcd", "abcd", "abcd", "ab"]
        );
        assert_eq!(
            accepted_after(2, &["abcd", "", "", "ab"]),
            ["abcd", "abcd", "", "ab"]
        );
        assert_eq!(accepted_after(1, &["abcd", ""]), ["abcd", ""]);
    }

    #[test]
    fn a_good_answer_in_between_begins_the_count_again() {
        let answers = ["ab", "", "ab", "", ""];
        assert_eq!(accepted_after(3, &answers), ["ab", "ab", "ab", "ab", "ab"]);
    }

    #[test]
    fn new_workers_of_an_unconfirmed_answer_are_accepted_at_once() {
        assert_eq!(accepted_after(2, &["ab", "xy", "xy"]), ["ab", "abxy", "xy"]);
    }

    #[test]
    fn the_first_answer_of_another_place_is_accepted_in_full() {
        let mut accepted = AcceptedWorkers::new(3);
        accepted.record(answer("ab"));
        accepted.accept_next();
        accepted.record(answer("x"));
        assert_eq!(accepted.workers().unwrap(), answer("x"));
        accepted.record(Vec::new());
        assert_eq!(accepted.workers().unwrap(), answer("x"));
    }

    #[test]
    fn changed_properties_of_a_worker_are_a_change_and_the_same_answer_is_none() {
        let mut accepted = AcceptedWorkers::new(2);
        let all_confirmed = |is_changed| AcceptedChange {
            is_changed,
            unconfirmed: 0,
        };
        assert_eq!(accepted.workers(), None);
        assert_eq!(accepted.record(answer("a")), all_confirmed(true));
        assert_eq!(accepted.record(answer("a")), all_confirmed(false));
        let mut heavier = answer("a");
        heavier[0].weight = 2.0;
        assert_eq!(accepted.record(heavier), all_confirmed(true));
        let unconfirmed = AcceptedChange {
            is_changed: false,
            unconfirmed: 1,
        };
        assert_eq!(accepted.record(Vec::new()), unconfirmed);
    }
}
