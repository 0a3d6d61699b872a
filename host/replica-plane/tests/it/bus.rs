//! Bus in memory that can lose and delay messages.

use std::sync::{Arc, Mutex};

use replicas::{Bus, BusEvent, FleetSubject};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most events that wait for a router.
const MOST: usize = 10_000;

/// The bus between the routers of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<HubState>>);

#[derive(Debug, Default)]
struct HubState {
    members: Vec<Sender<BusEvent>>,
    loses: bool,
    stalls: bool,
    /// Messages of a stall, with their receivers.
    waiting: Vec<(usize, BusEvent)>,
}

/// One router's end.
#[derive(Debug)]
pub(crate) struct HubBus {
    hub: Hub,
    at: usize,
    events: Receiver<BusEvent>,
}

impl Hub {
    pub(crate) fn join(&self) -> HubBus {
        let (sender, events) = channel(MOST);
        sender.try_send(BusEvent::Connected).unwrap();
        let mut state = self.0.lock().unwrap();
        state.members.push(sender);
        HubBus {
            hub: self.clone(),
            at: state.members.len() - 1,
            events,
        }
    }

    /// Loses all messages while `loses`.
    pub(crate) fn lose(&self, loses: bool) {
        self.0.lock().unwrap().loses = loses;
    }

    /// Ends the connections of all routers, or connects them again.
    pub(crate) fn connect(&self, connected: bool) {
        let mut state = self.0.lock().unwrap();
        state.loses = !connected;
        for member in &state.members {
            let event = if connected {
                BusEvent::Connected
            } else {
                BusEvent::Disconnected
            };
            // A router that has ended receives nothing.
            let _ = member.try_send(event);
        }
    }

    /// Keeps all messages while `stalls`, and delivers them then.
    pub(crate) fn stall(&self, stalls: bool) {
        let mut state = self.0.lock().unwrap();
        state.stalls = stalls;
        if !stalls {
            for (to, event) in std::mem::take(&mut state.waiting) {
                let _ = state.members[to].try_send(event);
            }
        }
    }
}

impl Bus for HubBus {
    fn publish(&self, subject: FleetSubject, payload: Vec<u8>) -> bool {
        let mut state = self.hub.0.lock().unwrap();
        let state = &mut *state;
        if state.loses {
            return true;
        }
        for (to, member) in state.members.iter().enumerate().filter(|(to, _)| *to != self.at) {
            let event = BusEvent::Message {
                subject,
                payload: payload.clone(),
            };
            if state.stalls {
                state.waiting.push((to, event));
            } else {
                // A router that has ended receives nothing.
                let _ = member.try_send(event);
            }
        }
        true
    }

    async fn next(&mut self) -> BusEvent {
        self.events.recv().await.unwrap_or(BusEvent::Closed)
    }
}
