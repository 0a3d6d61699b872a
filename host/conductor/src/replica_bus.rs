//! Bus between routers: NATS, in a build that has the feature `nats`.

use std::path::PathBuf;

#[cfg(feature = "nats")]
pub(crate) use self::nats::{flush, start};
#[cfg(not(feature = "nats"))]
pub(crate) use self::without::{flush, start};

/// Servers and credentials of the bus.
#[derive(Debug)]
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "only NATS reads them"))]
pub(crate) struct BusOptions {
    pub(crate) servers: Vec<String>,
    pub(crate) fleet: String,
    pub(crate) name: String,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
}

#[cfg(feature = "nats")]
mod nats {
    use std::time::Duration;

    use nats_bus::{NatsBus, NatsOptions};
    use observability::error_chain;
    use replicas::RouterId;
    use tracing::{error, info};

    use super::BusOptions;

    /// Longest wait for the goodbye to be sent.
    const FLUSH: Duration = Duration::from_millis(500);

    /// Starts the bus, which connects in the background. `None` if its options are invalid.
    pub(crate) async fn start(options: BusOptions, router: RouterId) -> Option<NatsBus> {
        let (fleet, servers) = (&options.fleet, options.servers.join(", "));
        info!(%fleet, %servers, "connecting to the bus between routers; this router serves alone until it is connected");
        let options = NatsOptions {
            servers: options.servers,
            fleet: options.fleet,
            name: options.name,
            credentials: options.credentials,
            ca: options.ca,
        };
        let bus = NatsBus::start(&options, router).await;
        bus.inspect_err(|error| error!("{}: this router serves alone", error_chain(error)))
            .ok()
    }

    /// Sends what waits.
    pub(crate) async fn flush(bus: NatsBus) {
        bus.flush(FLUSH).await;
    }
}

#[cfg(not(feature = "nats"))]
mod without {
    use replicas::{Bus, BusEvent, FleetSubject, RouterId};
    use tracing::error;

    use super::BusOptions;

    /// Bus of a build that has none. It has no values.
    pub(crate) enum NoBus {}

    impl Bus for NoBus {
        fn publish(&self, _: FleetSubject, _: Vec<u8>) -> bool {
            match *self {}
        }

        async fn next(&mut self) -> BusEvent {
            match *self {}
        }
    }

    /// Logs that the build has no bus.
    #[expect(clippy::unused_async, reason = "the build with NATS waits here")]
    pub(crate) async fn start(options: BusOptions, _: RouterId) -> Option<NoBus> {
        error!(
            fleet = %options.fleet,
            "failed to connect to the bus between routers: this program was built without the feature `nats`; \
             this router serves alone"
        );
        None
    }

    /// Sends nothing.
    #[expect(clippy::unused_async, reason = "the build with NATS waits here")]
    pub(crate) async fn flush(bus: NoBus) {
        match bus {}
    }
}
