//! Epoch thread: advances the epoch while calls are running, and sleeps otherwise. A thousand wake-ups a second took
//! 3.5 % of the time of a router that relays streams and rarely decides.
//!
//! A call costs two additions to one counter and a check if the thread sleeps. A call wakes a sleeping thread, at most
//! once per sleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval of checks of running calls.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call before the thread sleeps: calls in quick succession then need no wake-up.
const LINGER: u32 = 2;

/// Unit of begun calls in the counter of calls. The lower half counts running calls.
const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = BEGUN - 1;

/// The thread; dropping this ends it.
pub(crate) struct EpochTicker {
    shared: Arc<TickerState>,
    thread: Thread,
}

/// All accesses are sequentially consistent: a call adds to `calls` and then checks `rests`, the thread sets `rests`
/// and then checks `calls`, so one of them sees the other.
#[derive(Default)]
struct TickerState {
    calls: AtomicU64,
    rests: AtomicBool,
    is_over: AtomicBool,
}

impl EpochTicker {
    /// Starts the thread. `tick` is called about every [`TICK`] while a call is running.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(TickerState::default());
        let seen = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("policy-epoch".to_owned())
            .spawn(move || seen.run(tick))?;
        Ok(Self {
            shared,
            thread: thread.thread().clone(),
        })
    }

    fn begin(&self) {
        let TickerState { calls, rests, .. } = &*self.shared;
        calls.fetch_add(BEGUN + 1, Ordering::SeqCst);
        if rests.load(Ordering::SeqCst) && rests.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    fn end(&self) {
        self.shared.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for EpochTicker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl TickerState {
    fn run(&self, tick: impl Fn()) {
        let (mut seen, mut quiet) = (0, 0);
        while !self.is_over.load(Ordering::SeqCst) {
            thread::sleep(TICK);
            tick();
            let calls = self.calls.load(Ordering::SeqCst);
            let is_quiet = calls == seen && calls & UNDER_WAY == 0;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            seen = calls;
            if quiet >= LINGER {
                self.rest(seen);
                quiet = 0;
            }
        }
    }

    /// Sleeps until another call begins.
    fn rest(&self, seen: u64) {
        self.rests.store(true, Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) == seen && !self.is_over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.rests.store(false, Ordering::SeqCst);
    }
}

/// Guard of one instance's running calls: dropping it ends them.
pub(crate) struct CallGuard {
    ticker: Arc<EpochTicker>,
    is_on: bool,
}

impl CallGuard {
    pub(crate) fn new(ticker: &Arc<EpochTicker>) -> Self {
        Self {
            ticker: Arc::clone(ticker),
            is_on: false,
        }
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self) {
        if !self.is_on {
            self.is_on = true;
            self.ticker.begin();
        }
    }

    /// Ends a call.
    pub(crate) fn end(&mut self) {
        if self.is_on {
            self.is_on = false;
            self.ticker.end();
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Returns a ticker and a channel of its ticks. The channel ends with the thread.
    fn ticker() -> (Arc<EpochTicker>, mpsc::Receiver<()>) {
        let (sender, ticks) = mpsc::sync_channel(16);
        // The test may have stopped receiving.
        let ticker = EpochTicker::start(move || {
            let _ = sender.try_send(());
        });
        let ticker = ticker.unwrap();
        (Arc::new(ticker), ticks)
    }

    #[track_caller]
    fn wait_for_rest(ticker: &EpochTicker) {
        for _ in 0..10_000 {
            if ticker.shared.rests.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(TICK);
        }
        panic!("it does not rest");
    }

    #[test]
    fn ticks_while_a_call_is_under_way_and_rests_while_none_is() {
        let (ticker, ticks) = ticker();
        let mut watch = CallGuard::new(&ticker);
        for _ in 0..3 {
            wait_for_rest(&ticker);
            let _ = ticks.try_iter().count();
            watch.begin();
            // Much longer than the thread lingers.
            for _ in 0..10 {
                ticks.recv().unwrap();
            }
            assert!(!ticker.shared.rests.load(Ordering::SeqCst));
            watch.end();
        }
        wait_for_rest(&ticker);
    }

    #[test]
    fn ticks_until_the_last_of_several_calls_is_over() {
        let (ticker, ticks) = ticker();
        let mut watches = [CallGuard::new(&ticker), CallGuard::new(&ticker)];
        wait_for_rest(&ticker);
        for watch in &mut watches {
            watch.begin();
            watch.begin();
        }
        let [mut first, second] = watches;
        first.end();
        first.end();
        for _ in 0..10 {
            ticks.recv().unwrap();
        }
        drop(second);
        wait_for_rest(&ticker);
    }

    #[test]
    fn no_beginning_is_missed_however_it_falls() {
        let (ticker, ticks) = ticker();
        let mut watch = CallGuard::new(&ticker);
        for _ in 0..200 {
            let _ = ticks.try_iter().count();
            watch.begin();
            ticks.recv().unwrap();
            watch.end();
            // About the time when the thread goes to sleep.
            thread::sleep(TICK * LINGER);
        }
    }

    #[test]
    fn its_thread_ends_with_it_though_it_rests() {
        let (ticker, ticks) = ticker();
        wait_for_rest(&ticker);
        drop(ticker);
        // Ends with the channel.
        let _ = ticks.iter().count();
    }
}
