//! Verdict: compares the measurements with the targets.

use std::fmt;

/// Measurements.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    /// Bytes that were resident at most, and may be.
    pub(super) peak: u64,
    pub(super) limit: u64,
    /// p99 of ordinary requests without attacks and under them.
    pub(super) quiet_ms: f64,
    pub(super) attacked_ms: f64,
    /// Maximum ratio of the two.
    pub(super) slower: f64,
    /// Ordinary requests that failed or could not be sent.
    pub(super) failed: u64,
    /// Ordinary requests that were answered, in the run with fewer.
    pub(super) answered: u64,
    /// Number of requests to `/health`, and of those not answered in time.
    pub(super) health: (u64, u64),
    /// Requests that were answered though they were hidden in others.
    pub(super) smuggled: u64,
}

impl Verdict {
    fn ratio(&self) -> f64 {
        self.attacked_ms / self.quiet_ms
    }

    /// Returns the missed targets.
    pub(super) fn misses(&self) -> Vec<String> {
        let aims = [
            (self.peak > self.limit, "memory went beyond its limit"),
            // No number is no success.
            (
                self.ratio().is_nan() || self.ratio() > self.slower,
                "ordinary requests became slow",
            ),
            (self.failed > 0, "ordinary requests failed"),
            (self.answered == 0, "no ordinary request was answered"),
            (
                self.health.1 > 0 || self.health.0 == 0,
                "/health was not answered",
            ),
            (self.smuggled > 0, "requests were smuggled"),
        ];
        let missed = aims.into_iter().filter(|(is_missed, _)| *is_missed);
        missed.map(|(_, what)| what.to_owned()).collect()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let (queried, unanswered) = self.health;
        writeln!(f, "| figure | measured | aim |\n| --- | ---: | ---: |")?;
        writeln!(
            f,
            "| peak memory | {} MiB | {} MiB |",
            mib(self.peak),
            mib(self.limit)
        )?;
        writeln!(
            f,
            "| p99 of ordinary requests, without attacks and under them | {:.1} ms, {:.1} ms: {:.2} times | {:.1} times |",
            self.quiet_ms,
            self.attacked_ms,
            self.ratio(),
            self.slower
        )?;
        writeln!(f, "| ordinary requests that failed | {} | 0 |", self.failed)?;
        writeln!(
            f,
            "| `/health` not answered, of {queried} times | {unanswered} | 0 |"
        )?;
        writeln!(f, "| smuggled requests answered | {} | 0 |", self.smuggled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Verdict {
        Verdict {
            peak: 100,
            limit: 100,
            quiet_ms: 10.0,
            attacked_ms: 20.0,
            slower: 2.0,
            failed: 0,
            answered: 1,
            health: (10, 0),
            smuggled: 0,
        }
    }

    #[test]
    fn an_aim_is_missed_by_itself() {
        assert_eq!(good().misses(), [""; 0]);
        let spoil: [fn(&mut Verdict); 7] = [
            |it| it.peak += 1,
            |it| it.attacked_ms = 20.1,
            |it| it.quiet_ms = f64::NAN,
            |it| it.failed = 1,
            |it| it.answered = 0,
            |it| it.health = (0, 0),
            |it| it.smuggled = 1,
        ];
        for spoil in spoil {
            let mut verdict = good();
            spoil(&mut verdict);
            assert_eq!(verdict.misses().len(), 1, "{verdict:?}");
        }
    }
}
