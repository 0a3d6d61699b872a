//! Reach of the routers of a live command, which goes on while it reaches one of them.

use std::cell::Cell;
use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use crate::Exit;
use crate::admin::{AdminClient, EventStream, RemoteError, RouterSet};

/// Pause before a stream is opened again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Routers that a live command reaches.
#[derive(Debug)]
pub(super) struct RouterReach {
    routers: usize,
    away: Cell<usize>,
    has_reached: Cell<bool>,
}

impl RouterReach {
    pub(super) fn of(routers: &RouterSet) -> Self {
        Self {
            routers: routers.clients().len(),
            away: Cell::new(0),
            has_reached: Cell::new(false),
        }
    }

    /// Opens the first stream of a router. Reports a router that is away with `report`, and opens its stream later.
    ///
    /// # Errors
    /// If the router refuses, or if none of the routers is reached.
    pub(super) async fn open(
        &self,
        client: &AdminClient,
        path: &str,
        report: impl AsyncFnOnce(RemoteError),
    ) -> Result<EventStream, RemoteError> {
        let error = match client.stream(path).await {
            Ok(stream) => {
                self.has_reached.set(true);
                return Ok(stream);
            }
            Err(error) => error,
        };
        let is_last = self.away.get() + 1 == self.routers && !self.has_reached.get();
        if is_last || !error.is_away() {
            return Err(error);
        }
        self.lost();
        report(error).await;
        self.open_again(client, path).await
    }

    /// Records that the stream of a router was lost.
    pub(super) fn lost(&self) {
        self.away.set(self.away.get() + 1);
    }

    /// Opens the stream of a router that is away.
    ///
    /// # Errors
    /// If the router refuses it for good.
    pub(super) async fn open_again(
        &self,
        client: &AdminClient,
        path: &str,
    ) -> Result<EventStream, RemoteError> {
        loop {
            sleep(AGAIN_AFTER).await;
            match client.stream(path).await {
                Ok(stream) => {
                    self.has_reached.set(true);
                    self.away.set(self.away.get().saturating_sub(1));
                    return Ok(stream);
                }
                Err(error) if is_for_good(&error) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the exit code of a command that has shown all that it was to show.
    pub(super) fn exit(&self) -> Exit {
        match self.away.get() {
            0 => Exit::Success,
            _ => Exit::Failure,
        }
    }
}

/// Returns whether a router refuses the key, and thus every attempt. A router that starts, and a proxy before it,
/// refuse otherwise for a while.
fn is_for_good(error: &RemoteError) -> bool {
    const OF_KEYS: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
    matches!(error, RemoteError::Refused { status, .. } if OF_KEYS.contains(status))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_refused_key_is_for_good_and_a_busy_router_is_tried_again() {
        let refused = |status: StatusCode| {
            is_for_good(&RemoteError::Refused {
                router: "http://a:1".to_owned(),
                status,
                message: "no".to_owned(),
                page: Box::new(Value::Null),
            })
        };
        assert!(refused(StatusCode::UNAUTHORIZED) && refused(StatusCode::FORBIDDEN));
        assert!(!refused(StatusCode::SERVICE_UNAVAILABLE) && !refused(StatusCode::NOT_FOUND));
    }
}
