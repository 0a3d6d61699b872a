//! Who of those that a policy holds is asked again because capacity was freed.
//!
//! One answer to one release can let several go, or none. Whether a release is of use to a request only its policy can tell, and
//! asking is what it costs: with a thousand that wait, a release that is of use to nobody would be a thousand decisions. So those
//! are asked that it may be of use to, in their order: a few that wait for the worker where it happened, a few that wait elsewhere
//! and might be served here sooner, and more of those that wait for none in particular. That is enough: in replays of Mooncake's
//! conversation trace at twice its speed the mean time to first token is that of asking everybody
//! (`host/adr/0016-wake-budget.md`).

use crate::id::WorkerId;

/// Most requests asked in vain that wait for the worker itself.
const AIMED: u8 = 2;
/// Most that wait for no worker in particular.
const FREE: u8 = 16;
/// Most that wait for another.
const ELSEWHERE: u8 = 4;

/// A release of capacity, and how many it is still worth asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Where it happened; none: anywhere.
    worker: Option<WorkerId>,
    aimed: u8,
    free: u8,
    elsewhere: u8,
}

impl Release {
    /// That worker has less to do.
    #[must_use]
    pub const fn at(worker: WorkerId) -> Self {
        Self::new(Some(worker))
    }

    /// Any worker may have less to do, or may be a new one.
    #[must_use]
    pub const fn anywhere() -> Self {
        Self::new(None)
    }

    const fn new(worker: Option<WorkerId>) -> Self {
        Self {
            worker,
            aimed: AIMED,
            free: FREE,
            elsewhere: ELSEWHERE,
        }
    }

    /// One that was asked is sent, or gone: there may be room for more.
    #[must_use]
    pub const fn renewed(self) -> Self {
        Self::new(self.worker)
    }

    /// Whether one that waits for that worker is asked.
    #[must_use]
    pub fn asks(mut self, waits_for: Option<WorkerId>) -> bool {
        *self.left(waits_for) > 0
    }

    /// One that waits for that worker is asked.
    pub fn spend(&mut self, waits_for: Option<WorkerId>) {
        let left = self.left(waits_for);
        *left = left.saturating_sub(1);
    }

    fn left(&mut self, waits_for: Option<WorkerId>) -> &mut u8 {
        match (self.worker, waits_for) {
            (None, _) | (_, None) => &mut self.free,
            (Some(here), Some(there)) if here == there => &mut self.aimed,
            _ => &mut self.elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkerId = WorkerId(1);
    const THERE: WorkerId = WorkerId(2);

    /// How many that wait so are asked in vain.
    fn asked(mut release: Release, waits_for: Option<WorkerId>) -> u8 {
        let mut count = 0;
        while release.asks(waits_for) {
            release.spend(waits_for);
            count += 1;
        }
        count
    }

    #[test]
    fn a_release_is_worth_asking_a_few_of_each_kind() {
        let release = Release::at(HERE);
        assert_eq!(asked(release, Some(HERE)), AIMED);
        assert_eq!(asked(release, Some(THERE)), ELSEWHERE);
        assert_eq!(asked(release, None), FREE);
        for waits_for in [None, Some(HERE), Some(THERE)] {
            assert_eq!(asked(Release::anywhere(), waits_for), FREE);
        }
    }

    #[test]
    fn the_kinds_do_not_spend_for_each_other_until_one_was_sent() {
        let mut release = Release::at(HERE);
        (0..AIMED).for_each(|_| release.spend(Some(HERE)));
        assert!(!release.asks(Some(HERE)) && release.asks(Some(THERE)) && release.asks(None));
        assert_eq!(release.renewed(), Release::at(HERE));
    }
}
