//! Tournament tree of next-event times: O(1) minimum, and O(k log n) iteration over the k items due by a given time.

/// Next-event times by item, in microseconds; `u64::MAX` for an item without an event.
#[derive(Debug)]
pub(super) struct DueTree {
    /// A node's children are at twice its place and after it, the root is at 1.
    least: Vec<u64>,
    /// A power of two: where the times themselves begin.
    leaves: usize,
}

impl DueTree {
    /// Returns a tree of so many items without events.
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self {
            least: vec![u64::MAX; 2 * leaves],
            leaves,
        }
    }

    /// Sets the next event of an item.
    pub(super) fn set(&mut self, number: usize, at_us: Option<u64>) {
        let mut node = self.leaves + number;
        self.least[node] = at_us.unwrap_or(u64::MAX);
        while node > 1 {
            node /= 2;
            let least = self.least[2 * node].min(self.least[2 * node + 1]);
            if self.least[node] == least {
                return;
            }
            self.least[node] = least;
        }
    }

    /// Returns the earliest time.
    pub(super) fn next(&self) -> Option<u64> {
        Some(self.least[1]).filter(|at| *at < u64::MAX)
    }

    /// Returns the first item from a number on that is due by now.
    pub(super) fn first(&self, from: usize, now_us: u64) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        let mut node = self.leaves + from;
        while self.least[node] > now_us {
            // To the next tree on the right: past all that ends with this one.
            while node % 2 == 1 {
                node /= 2;
                if node <= 1 {
                    return None;
                }
            }
            node += 1;
        }
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.least[node] > now_us);
        }
        Some(node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn due_workers_equal_those_of_a_linear_search(
            count in 1_usize..20,
            changes in prop::collection::vec((0_usize..20, prop::option::of(0_u64..50)), 0..60),
            now_us in 0_u64..60,
        ) {
            let mut due = DueTree::new(count);
            let mut times = vec![None; count];
            for (number, at_us) in changes {
                due.set(number % count, at_us);
                times[number % count] = at_us;
            }
            prop_assert_eq!(due.next(), times.iter().copied().flatten().min());
            for from in 0..=count {
                let expected = (from..count).find(|at| times[*at].is_some_and(|at_us| at_us <= now_us));
                prop_assert_eq!(due.first(from, now_us), expected);
            }
        }
    }
}
