//! Belief: the workers of a source that are believed to exist, after all of its answers so far.
//!
//! A broken source must not empty a pool. So an answer that misses half of the workers or more is doubted: a worker
//! goes only once a number of answers in a row miss it. New workers are taken at once.

use std::collections::BTreeMap;

use crate::worker::DiscoveredWorker;

/// Believed workers of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Belief {
    /// Answers in a row that must miss a worker while half or more are missing.
    confirm: u32,
    /// In the order of their URLs. `None` before the first answer.
    workers: Option<Vec<DiscoveredWorker>>,
    /// Answers in a row that missed each doubted worker, by URL.
    missed: BTreeMap<String, u32>,
    /// Set if the next answer is believed in full.
    believes_next: bool,
}

/// Effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeliefChange {
    /// Set if the believed workers changed.
    pub is_changed: bool,
    /// Number of workers that the answer misses and that stay for now.
    pub doubted: usize,
}

impl Belief {
    /// Returns the belief before the first answer. `confirm` is the number of answers in a row that must miss a worker
    /// while half or more are missing; 1 believes every answer.
    #[must_use]
    pub fn new(confirm: u32) -> Self {
        Self {
            confirm: confirm.max(1),
            workers: None,
            missed: BTreeMap::new(),
            believes_next: false,
        }
    }

    /// Lets the next answer be believed in full: it comes from another place.
    pub fn believe_next(&mut self) {
        self.believes_next = true;
    }

    /// Changes the number of answers that must miss a worker.
    pub fn set_confirm(&mut self, confirm: u32) {
        self.confirm = confirm.max(1);
    }

    /// Returns the believed workers in the order of their URLs; `None` before the first answer.
    #[must_use]
    pub fn workers(&self) -> Option<&[DiscoveredWorker]> {
        self.workers.as_deref()
    }

    /// Returns the number of workers that the last answer missed and that stay for now.
    #[must_use]
    pub fn doubted(&self) -> usize {
        self.missed.len()
    }

    /// Takes an answer: workers in the order of their URLs, each URL once.
    pub fn record(&mut self, answer: Vec<DiscoveredWorker>) -> BeliefChange {
        let believed = self.workers.take().unwrap_or_default();
        let is_listed = |worker: &&DiscoveredWorker| {
            let found = answer.binary_search_by(|listed| listed.url.cmp(&worker.url));
            found.is_ok()
        };
        let missing: Vec<&DiscoveredWorker> = believed.iter().filter(|worker| !is_listed(worker)).collect();
        let is_other_place = std::mem::take(&mut self.believes_next);
        let is_doubtful = !is_other_place && missing.len() * 2 >= believed.len();
        let before = std::mem::take(&mut self.missed);
        let mut next = answer.clone();
        for worker in missing.into_iter().filter(|_| is_doubtful) {
            let times = before.get(&worker.url).map_or(1, |times| times + 1);
            if times < self.confirm {
                next.push(worker.clone());
                self.missed.insert(worker.url.clone(), times);
            }
        }
        next.sort_by(|one, other| one.url.cmp(&other.url));
        let is_changed = next != believed;
        self.workers = Some(next);
        BeliefChange {
            is_changed,
            doubted: self.missed.len(),
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

    /// Takes the answers in turn, and returns the believed workers after each.
    fn believed(confirm: u32, answers: &[&str]) -> Vec<String> {
        let mut belief = Belief::new(confirm);
        let names = |workers: &[DiscoveredWorker]| workers.iter().map(|worker| &worker.name()[..1]).collect();
        let after = |names_of: &&str| {
            belief.record(answer(names_of));
            names(belief.workers().unwrap())
        };
        answers.iter().map(after).collect()
    }

    #[test]
    fn fewer_than_half_may_go_at_once() {
        assert_eq!(believed(3, &["abcde", "abc"]), ["abcde", "abc"]);
    }

    #[test]
    fn half_or_more_go_once_the_answer_is_repeated() {
        assert_eq!(
            believed(3, &["abcd", "ab", "ab", "ab"]),
            ["abcd", "abcd", "abcd", "ab"]
        );
        assert_eq!(believed(2, &["abcd", "", "", "ab"]), ["abcd", "abcd", "", "ab"]);
        assert_eq!(believed(1, &["abcd", ""]), ["abcd", ""]);
    }

    #[test]
    fn a_good_answer_in_between_begins_the_count_again() {
        let answers = ["ab", "", "ab", "", ""];
        assert_eq!(believed(3, &answers), ["ab", "ab", "ab", "ab", "ab"]);
    }

    #[test]
    fn new_workers_of_a_doubted_answer_are_taken_at_once() {
        assert_eq!(believed(2, &["ab", "xy", "xy"]), ["ab", "abxy", "xy"]);
    }

    #[test]
    fn the_first_answer_of_another_place_is_believed_in_full() {
        let mut belief = Belief::new(3);
        belief.record(answer("ab"));
        belief.believe_next();
        belief.record(answer("x"));
        assert_eq!(belief.workers().unwrap(), answer("x"));
        belief.record(Vec::new());
        assert_eq!(belief.workers().unwrap(), answer("x"));
    }

    #[test]
    fn changed_properties_of_a_worker_are_a_change_and_the_same_answer_is_none() {
        let mut belief = Belief::new(2);
        let no_doubt = |is_changed| BeliefChange {
            is_changed,
            doubted: 0,
        };
        assert_eq!(belief.workers(), None);
        assert_eq!(belief.record(answer("a")), no_doubt(true));
        assert_eq!(belief.record(answer("a")), no_doubt(false));
        let mut heavier = answer("a");
        heavier[0].weight = 2.0;
        assert_eq!(belief.record(heavier), no_doubt(true));
        let doubted = BeliefChange {
            is_changed: false,
            doubted: 1,
        };
        assert_eq!(belief.record(Vec::new()), doubted);
    }
}
