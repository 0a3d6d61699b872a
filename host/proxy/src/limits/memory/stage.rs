//! Stages of memory pressure by the used share of the limit. Pure: the reading is passed in.

/// Stage of load shedding. Each stage includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryStage {
    /// Sheds nothing.
    Calm,
    /// Sheds caches that can be rebuilt, and idle connections.
    Saving,
    /// Refuses requests that have a body or open a WebSocket, and connections beyond the overflow area.
    Refusing,
    /// Drops bodies in arrival, the largest first.
    Ending,
}

/// Stages with their names and the percentage of the limit at which they begin.
const STAGES: [(MemoryStage, &str, u64); 4] = [
    (MemoryStage::Calm, "calm", 0),
    (MemoryStage::Saving, "saving", 80),
    (MemoryStage::Refusing, "refusing", 90),
    (MemoryStage::Ending, "ending", 95),
];

/// Hysteresis: a stage ends this many percent below its beginning.
const SLACK: u64 = 5;

impl MemoryStage {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        STAGES[self as usize].1
    }

    pub(super) fn of(number: u8) -> Self {
        STAGES
            .get(usize::from(number))
            .map_or(Self::Calm, |(stage, ..)| *stage)
    }
}

/// Returns the stage after `now` for `resident` bytes of `limit`.
pub(super) fn next(now: MemoryStage, resident: u64, limit: u64) -> MemoryStage {
    let percent = u128::from(resident) * 100 / u128::from(limit.max(1));
    let holds = |(stage, _, from): &&(MemoryStage, &str, u64)| {
        let slack = if *stage <= now { SLACK } else { 0 };
        percent >= u128::from(from.saturating_sub(slack))
    };
    let last = STAGES.iter().rev().find(holds);
    last.map_or(MemoryStage::Calm, |(stage, ..)| *stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the stages of consecutive readings with a limit of 100.
    #[track_caller]
    fn check(readings: &[u64], expected: &[&str]) {
        let mut stage = MemoryStage::Calm;
        let mut seen = Vec::new();
        for reading in readings {
            stage = next(stage, *reading, 100);
            assert_eq!(MemoryStage::of(stage as u8), stage);
            seen.push(stage.as_str());
        }
        assert_eq!(seen, expected, "{readings:?}");
    }

    #[test]
    fn a_stage_begins_at_its_share_and_ends_a_little_below_it() {
        check(
            &[79, 80, 76, 75, 74],
            &["calm", "saving", "saving", "saving", "calm"],
        );
        check(&[89, 90, 85, 84], &["saving", "refusing", "refusing", "saving"]);
        check(
            &[95, 90, 89, 85, 84, 10],
            &["ending", "ending", "refusing", "refusing", "saving", "calm"],
        );
        check(&[200, 0], &["ending", "calm"]);
    }

    #[test]
    fn no_reading_overflows() {
        assert_eq!(next(MemoryStage::Calm, u64::MAX, 1), MemoryStage::Ending);
        assert_eq!(next(MemoryStage::Calm, u64::MAX, 0), MemoryStage::Ending);
        assert_eq!(next(MemoryStage::Ending, 0, u64::MAX), MemoryStage::Calm);
    }
}
