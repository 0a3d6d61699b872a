//! Round-robin queue of clients' jobs: a client's jobs wait for each other, not for all those of others. When the queue
//! is full, the client with the most jobs loses one. Pure: jobs have any type.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Bounded queue of all clients' jobs.
#[derive(Debug)]
pub(super) struct Turns<C, J> {
    /// Clients in round-robin order; each client that has a job is in it once.
    order: VecDeque<C>,
    jobs: HashMap<C, VecDeque<J>>,
    count: usize,
    limit: usize,
}

/// Result of an enqueue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Queued<J> {
    /// The job waits.
    Waits,
    /// The job waits and replaces the newest job of another client.
    InPlaceOf(J),
    /// The queue is full, and no client has enough more jobs in it than this one.
    Full(J),
}

impl<C: Clone + Eq + Hash, J> Turns<C, J> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            order: VecDeque::new(),
            jobs: HashMap::new(),
            count: 0,
            limit,
        }
    }

    pub(super) fn push(&mut self, client: C, job: J) -> Queued<J> {
        let mut gave_way = None;
        if self.count >= self.limit {
            match self.make_room(&client) {
                Some(other) => gave_way = Some(other),
                None => return Queued::Full(job),
            }
        }
        self.count += 1;
        let jobs = self.jobs.entry(client.clone()).or_default();
        if jobs.is_empty() {
            self.order.push_back(client);
        }
        jobs.push_back(job);
        gave_way.map_or(Queued::Waits, Queued::InPlaceOf)
    }

    /// Dequeues the next job of the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<J> {
        let client = self.order.pop_front()?;
        let jobs = self.jobs.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&client);
        } else {
            self.order.push_back(client);
        }
        self.count -= usize::from(job.is_some());
        job
    }

    /// Removes the last job of the client with the most jobs, if it has more than `client` would have with one more.
    fn make_room(&mut self, client: &C) -> Option<J> {
        let own = self.jobs.get(client).map_or(0, VecDeque::len);
        let fullest = self.jobs.values_mut().max_by_key(|jobs| jobs.len())?;
        if fullest.len() <= own + 1 {
            return None;
        }
        self.count -= 1;
        fullest.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clients_take_turns_whoever_came_first() {
        let mut turns = Turns::new(10);
        for number in 0..4 {
            assert_eq!(turns.push('a', ('a', number)), Queued::Waits);
        }
        turns.push('b', ('b', 0));
        turns.push('b', ('b', 1));
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(
            order,
            [('a', 0), ('b', 0), ('a', 1), ('b', 1), ('a', 2), ('a', 3)]
        );
        assert!(turns.jobs.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_full_queue_drops_the_last_job_of_the_client_with_the_most_jobs() {
        let mut turns = Turns::new(3);
        for number in 0..3 {
            turns.push('a', ('a', number));
        }
        assert_eq!(turns.push('a', ('a', 3)), Queued::Full(('a', 3)));
        assert_eq!(turns.push('b', ('b', 0)), Queued::InPlaceOf(('a', 2)));
        // A replacement would not leave either with fewer jobs than the other.
        assert_eq!(turns.push('b', ('b', 1)), Queued::Full(('b', 1)));
        assert_eq!(turns.push('c', ('c', 0)), Queued::InPlaceOf(('a', 1)));
        assert_eq!(turns.push('d', ('d', 0)), Queued::Full(('d', 0)));
        assert_eq!(Turns::new(0).push('a', 1), Queued::Full(1));
    }

    proptest! {
        /// In any sequence, a client waits for at most one job of each other client between two of its own.
        #[test]
        fn nobody_waits_for_two_jobs_of_another(clients in prop::collection::vec(0_u8..5, 1..100), limit in 1_usize..40) {
            let mut turns = Turns::new(limit);
            for (number, client) in clients.iter().enumerate() {
                turns.push(*client, (*client, number));
                prop_assert!(turns.count <= limit);
                prop_assert_eq!(turns.count, turns.jobs.values().map(VecDeque::len).sum::<usize>());
            }
            let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
            for (at, (client, number)) in order.iter().enumerate() {
                let others: Vec<u8> = order[..at].iter().rev().map(|job| job.0).take_while(|other| other != client).collect();
                let distinct: HashSet<u8> = others.iter().copied().collect();
                prop_assert_eq!(others.len(), distinct.len());
                // A client's own jobs stay in order.
                prop_assert!(order[..at].iter().filter(|job| job.0 == *client).all(|job| job.1 < *number));
            }
        }
    }
}
