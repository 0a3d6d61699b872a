//! The thread that advances the epoch while calls are under way, and rests while none is: a thousand wake-ups a second took 3.5 % of
//! the time of a router that relays streams and decides seldom.
//!
//! A call pays two additions to one counter and a look at whether the thread rests. It wakes the thread where it does, at most once
//! each time that it went to rest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often running calls are looked at.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call before the thread rests: where calls follow one another this closely nobody has to wake it.
const LINGER: u32 = 2;

/// In the counter of calls: one that began, ever. The lower half counts those under way.
const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = BEGUN - 1;

/// The thread, which ends with this.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

/// All accesses are sequentially consistent: whoever begins a call adds to `calls` and then looks at `rests`, the thread sets `rests`
/// and then looks at `calls`, so that one of them sees the other.
#[derive(Default)]
struct Shared {
    calls: AtomicU64,
    rests: AtomicBool,
    is_over: AtomicBool,
}

impl Ticker {
    /// Starts the thread. `tick` is called about every [`TICK`] while a call is under way.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
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
        let Shared { calls, rests, .. } = &*self.shared;
        calls.fetch_add(BEGUN + 1, Ordering::SeqCst);
        if rests.load(Ordering::SeqCst) && rests.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    fn end(&self) {
        self.shared.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Shared {
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

    /// Until another call begins.
    fn rest(&self, seen: u64) {
        self.rests.store(true, Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) == seen && !self.is_over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.rests.store(false, Ordering::SeqCst);
    }
}

/// One instance's word that a call is under way, which it cannot forget to take back.
pub(crate) struct Watch {
    ticker: Arc<Ticker>,
    is_on: bool,
}

impl Watch {
    pub(crate) fn new(ticker: &Arc<Ticker>) -> Self {
        Self {
            ticker: Arc::clone(ticker),
            is_on: false,
        }
    }

    /// A call begins.
    pub(crate) fn begin(&mut self) {
        if !self.is_on {
            self.is_on = true;
            self.ticker.begin();
        }
    }

    /// It is over.
    pub(crate) fn end(&mut self) {
        if self.is_on {
            self.is_on = false;
            self.ticker.end();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A ticker, and what is told of each tick. The channel ends with the thread.
    fn ticker() -> (Arc<Ticker>, mpsc::Receiver<()>) {
        let (tell, ticks) = mpsc::sync_channel(16);
        // A test that does not listen has seen enough.
        let ticker = Ticker::start(move || {
            let _ = tell.try_send(());
        });
        let ticker = ticker.unwrap();
        (Arc::new(ticker), ticks)
    }

    #[track_caller]
    fn wait_for_rest(ticker: &Ticker) {
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
        let mut watch = Watch::new(&ticker);
        for _ in 0..3 {
            wait_for_rest(&ticker);
            let _ = ticks.try_iter().count();
            watch.begin();
            // Far more than it lingers.
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
        let mut watches = [Watch::new(&ticker), Watch::new(&ticker)];
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
        let mut watch = Watch::new(&ticker);
        for _ in 0..200 {
            let _ = ticks.try_iter().count();
            watch.begin();
            ticks.recv().unwrap();
            watch.end();
            // About when it goes to rest.
            thread::sleep(TICK * LINGER);
        }
    }

    #[test]
    fn its_thread_ends_with_it_though_it_rests() {
        let (ticker, ticks) = ticker();
        wait_for_rest(&ticker);
        drop(ticker);
        // Ends where the channel does.
        let _ = ticks.iter().count();
    }
}
