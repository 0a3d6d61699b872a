//! Event thread: delivers events to policies, and calls their ticks.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::EventHub;
use super::inbox::Inbox;

/// Interval of the deliveries while any policy listens. An event is delivered within about twice that.
const PACE: Duration = Duration::from_millis(50);
/// Pause after a tick that failed, or that was not let through.
const AGAIN: Duration = Duration::from_secs(1);
/// A lower priority than that of the threads that serve, as the shadows' thread has.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Policy that receives events.
struct EventReceiver {
    inbox: Arc<Inbox>,
    next_tick: Instant,
}

impl EventHub {
    /// Starts the thread. The thread ends when the hub is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(woken) = woken else { return Ok(()) };
        let hub = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("policy-events".into());
        thread.spawn(move || run(&hub, &woken)).map(drop)
    }
}

fn run(hub: &Weak<EventHub>, woken: &Receiver<()>) {
    // Elsewhere that would be the priority of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut receivers = Vec::new();
    while wait(woken, receivers.is_empty()) {
        let Some(hub) = hub.upgrade() else { return };
        loop {
            renew(&mut receivers, &hub);
            if !deliver_all(&mut receivers, &hub) {
                break;
            }
        }
    }
}

/// Waits until there may be something to do. Returns `true` while the hub exists.
fn wait(woken: &Receiver<()>, is_idle: bool) -> bool {
    if is_idle {
        return woken.recv().is_ok();
    }
    woken.recv_timeout(PACE) != Err(RecvTimeoutError::Disconnected)
}

/// Updates the list to the policies that receive events now.
fn renew(receivers: &mut Vec<EventReceiver>, hub: &EventHub) {
    let inboxes: Vec<_> = hub.inboxes().to_vec();
    let stays = |receiver: &EventReceiver| inboxes.iter().any(|inbox| Arc::ptr_eq(inbox, &receiver.inbox));
    for gone in receivers.extract_if(.., |receiver| !stays(receiver)) {
        gone.inbox.close(hub.clock);
    }
    for inbox in inboxes {
        if !receivers.iter().any(|known| Arc::ptr_eq(&known.inbox, &inbox)) {
            let next_tick = Instant::now();
            receivers.push(EventReceiver { inbox, next_tick });
        }
    }
}

/// Delivers one batch to each policy, and the ticks that are due. Returns `true` if there may be more.
fn deliver_all(receivers: &mut [EventReceiver], hub: &EventHub) -> bool {
    let mut more = false;
    for policy in receivers {
        more |= policy.inbox.deliver(hub.clock);
        if policy.inbox.ticks() && policy.next_tick <= Instant::now() {
            let pause = policy.inbox.tick(hub.clock).unwrap_or(AGAIN);
            policy.next_tick = Instant::now() + pause;
        }
    }
    more
}
