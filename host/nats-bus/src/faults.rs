//! Faults of a connection, each reported once while it lasts.

use std::collections::BTreeSet;

use async_nats::{ClientError, Event, ServerError};
use tokio::sync::mpsc;
use tracing::warn;

/// Most faults that are kept; more are not reported.
const MOST: usize = 32;

/// Faults since the connection was last made. Attempts to connect alternate between servers, and so do their faults.
#[derive(Debug, Default)]
pub(crate) struct Faults(BTreeSet<String>);

impl Faults {
    /// Takes an event. Returns its fault if it is a new one.
    pub(crate) fn take_in(&mut self, event: &Event) -> Option<String> {
        let fault = match event {
            Event::Connected => {
                self.0.clear();
                return None;
            }
            Event::ClientError(ClientError::Other(error)) | Event::ServerError(ServerError::Other(error)) => {
                error.clone()
            }
            Event::ClientError(error) => error.to_string(),
            Event::ServerError(error) => error.to_string(),
            _ => return None,
        };
        (self.0.len() < MOST && self.0.insert(fault.clone())).then_some(fault)
    }
}

/// Events of a connection, whose new faults are logged.
#[derive(Debug)]
pub(crate) struct LoggedEvents {
    events: mpsc::Receiver<Event>,
    faults: Faults,
}

impl LoggedEvents {
    pub(crate) fn new(events: mpsc::Receiver<Event>) -> Self {
        Self {
            events,
            faults: Faults::default(),
        }
    }

    pub(crate) async fn recv(&mut self) -> Option<Event> {
        let event = self.events.recv().await?;
        if let Some(why) = self.faults.take_in(&event) {
            warn!(why, "a connection between routers over NATS has a fault");
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str) -> Event {
        Event::ClientError(ClientError::Other(why.to_owned()))
    }

    #[test]
    fn each_fault_is_new_once_until_the_connection_is_made() {
        let mut faults = Faults::default();
        let mut news = |event: Event| faults.take_in(&event);
        assert_eq!(news(failed("IO error")).as_deref(), Some("IO error"));
        assert_eq!(news(failed("DNS error")).as_deref(), Some("DNS error"));
        assert_eq!(news(failed("IO error")), None);
        assert_eq!(news(Event::Disconnected), None);
        assert_eq!(news(Event::Connected), None);
        assert_eq!(news(failed("IO error")).as_deref(), Some("IO error"));
    }
}
