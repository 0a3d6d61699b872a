//! Timing in batches, taken in turns, so that a busy moment of the machine meets all contestants alike.

use std::time::{Duration, Instant};

/// Calls before anything is timed: the first make the instance and touch its memory.
const WARM_UP: u32 = 200;
/// A batch is made to take about this long.
const BATCH: Duration = Duration::from_millis(1);
/// Batches of each contestant.
const BATCHES: usize = 60;

/// Times of one contestant's batches, per call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timing {
    /// The best batch: what the call costs when nothing disturbs it.
    pub(super) best_ns: f64,
    /// The one in the middle.
    pub(super) median_ns: f64,
}

/// One contestant.
pub(super) struct TimedBatch<F> {
    call: F,
    /// Calls a batch.
    size: u32,
    /// Nanoseconds a call, batch by batch.
    batches: Vec<f64>,
}

impl<F: FnMut() -> Result<(), String>> TimedBatch<F> {
    /// Warms it up and finds how many calls make a batch.
    pub(super) fn new(mut call: F) -> Result<Self, String> {
        let start = Instant::now();
        let mut calls = 0;
        while calls < WARM_UP && start.elapsed() < BATCH * 100 {
            call()?;
            calls += 1;
        }
        let start = Instant::now();
        call()?;
        let once = start.elapsed().max(Duration::from_nanos(20));
        let size = BATCH.as_nanos() / once.as_nanos();
        Ok(Self {
            call,
            size: u32::try_from(size).unwrap_or(u32::MAX).max(1),
            batches: Vec::with_capacity(BATCHES),
        })
    }

    fn batch(&mut self) -> Result<(), String> {
        let start = Instant::now();
        for _ in 0..self.size {
            (self.call)()?;
        }
        let took = start.elapsed().as_nanos() as f64;
        self.batches.push(took / f64::from(self.size));
        Ok(())
    }

    fn timing(mut self) -> Timing {
        self.batches.sort_by(f64::total_cmp);
        let at = |position: usize| self.batches.get(position).copied().unwrap_or(f64::NAN);
        Timing {
            best_ns: at(0),
            median_ns: at(self.batches.len() / 2),
        }
    }
}

/// Times all of them; an error comes with the position of whose it is.
pub(super) fn time_in_turns<F: FnMut() -> Result<(), String>>(
    mut batches: Vec<TimedBatch<F>>,
) -> Result<Vec<Timing>, (usize, String)> {
    for _ in 0..BATCHES {
        for (position, batch) in batches.iter_mut().enumerate() {
            batch.batch().map_err(|what| (position, what))?;
        }
    }
    Ok(batches.into_iter().map(TimedBatch::timing).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_fails_later_is_reported_with_its_position() {
        let mut calls = 0;
        let fails: Box<dyn FnMut() -> Result<(), String>> = Box::new(move || {
            calls += 1;
            if calls > 500 {
                Err("tired".to_owned())
            } else {
                Ok(())
            }
        });
        let works: Box<dyn FnMut() -> Result<(), String>> = Box::new(|| Ok(()));
        let batches = vec![
            TimedBatch::new(works).ok().unwrap(),
            TimedBatch::new(fails).ok().unwrap(),
        ];
        assert_eq!(time_in_turns(batches), Err((1, "tired".to_owned())));
    }
}
