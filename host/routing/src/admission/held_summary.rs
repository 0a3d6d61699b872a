//! Summary of the requests that are held for a worker, in classes of their work: what routers exchange.

/// Number of classes.
pub const HELD_CLASSES: usize = 16;
/// Work below which a request is of the first class. Each class reaches twice as far as the one before.
const FIRST_BOUND: u64 = 128;

/// Held requests by class of their work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldSummary {
    classes: [HeldClass; HELD_CLASSES],
    first: f64,
}

impl Default for HeldSummary {
    fn default() -> Self {
        Self {
            classes: Default::default(),
            first: f64::INFINITY,
        }
    }
}

/// Held requests of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldClass {
    /// Number of requests.
    pub requests: u32,
    /// Their work.
    pub work: u64,
}

/// Returns the class of a request with this work.
fn class_of(work: u32) -> usize {
    (0..HELD_CLASSES - 1)
        .find(|class| u64::from(work) < bound(*class))
        .unwrap_or(HELD_CLASSES - 1)
}

/// Returns the work at which a class ends.
const fn bound(class: usize) -> u64 {
    FIRST_BOUND << class
}

impl HeldSummary {
    /// Returns the summary with these numbers of requests and work by class, and the order of the first request.
    #[must_use]
    pub fn of_classes(classes: [(u32, u64); HELD_CLASSES], first_order: f64) -> Self {
        Self {
            classes: classes.map(|(requests, work)| HeldClass { requests, work }),
            first: first_order,
        }
    }

    /// Returns the order of the first request, by the policy; infinite if there is none.
    #[must_use]
    pub fn first_order(&self) -> f64 {
        self.first
    }

    /// Returns the classes, from the least work to the most.
    #[must_use]
    pub fn classes(&self) -> &[HeldClass; HELD_CLASSES] {
        &self.classes
    }

    /// Adds a request with its work and its policy's order.
    pub fn add(&mut self, work: u32, order: f64) {
        self.first = self.first.min(order);
        let class = &mut self.classes[class_of(work)];
        class.requests = class.requests.saturating_add(1);
        class.work = class.work.saturating_add(work.into());
    }

    /// Adds the requests of another summary.
    pub fn add_all(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.requests = class.requests.saturating_add(more.requests);
            class.work = class.work.saturating_add(more.work);
        }
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn requests(&self) -> u32 {
        let requests = self.classes.iter().map(|class| class.requests);
        requests.fold(0, u32::saturating_add)
    }

    /// Returns the work of the requests with at most `most` work each. Within the class of `most` the requests are
    /// assumed to be spread evenly.
    #[must_use]
    pub fn work_up_to(&self, most: u32) -> u64 {
        let last = class_of(most);
        let below: u64 = self.classes[..last]
            .iter()
            .map(|class| class.work)
            .fold(0, u64::saturating_add);
        let from = if last == 0 { 0 } else { bound(last - 1) };
        let width = (bound(last) - from) as f64;
        let share = (u64::from(most).saturating_sub(from) as f64 / width).clamp(0.0, 1.0);
        below.saturating_add((self.classes[last].work as f64 * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_whole_classes_is_exact_and_that_of_the_last_is_a_share() {
        let mut held = HeldSummary::default();
        for work in [100, 200, 1_000, 5_000, u32::MAX] {
            held.add(work, f64::from(work));
        }
        assert_eq!(held.requests(), 5);
        assert_eq!(held.work_up_to(0), 0);
        assert_eq!(held.work_up_to(256), 300);
        assert_eq!(held.work_up_to(640), 300 + 250, "a quarter of the fourth class");
        assert_eq!(held.work_up_to(4_096), 1_300);
        assert_eq!(held.work_up_to(16_384), 6_300);
        assert!(held.work_up_to(u32::MAX) > u64::from(u32::MAX));
    }

    #[test]
    fn a_sum_has_the_requests_of_both_and_the_lower_order() {
        let [mut sum, mut one, mut two] = [HeldSummary::default(); 3];
        for (half, work, order) in [(&mut one, 100, 7.0), (&mut two, 9_999, 3.0)] {
            half.add(work, order);
            sum.add(work, order);
        }
        one.add_all(&two);
        one.add_all(&HeldSummary::default());
        assert_eq!(one, sum);
    }

    #[test]
    fn a_summary_is_made_again_of_its_parts() {
        let mut held = HeldSummary::default();
        assert_eq!(held.first_order(), f64::INFINITY);
        held.add(9_999, 7.0);
        held.add(10, -3.0);
        assert_eq!(held.first_order(), -3.0);
        let classes = held.classes().map(|class| (class.requests, class.work));
        assert_eq!(HeldSummary::of_classes(classes, held.first_order()), held);
    }
}
