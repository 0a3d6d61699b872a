//! Bus and store between routers: NATS, in a build that has the feature `nats`.

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
    pub(crate) login: Option<BusLogin>,
    /// Copies of each agreed entry.
    pub(crate) agreed_copies: usize,
    pub(crate) ca: Option<PathBuf>,
}

/// User and password.
#[derive(Debug)]
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "only NATS reads them"))]
pub(crate) struct BusLogin {
    pub(crate) user: String,
    pub(crate) password_file: PathBuf,
}

/// Connections of a router to the others.
pub(crate) struct BusConnections<B, S, D> {
    pub(crate) bus: B,
    pub(crate) store: S,
    /// Direct messages.
    pub(crate) direct: D,
}

#[cfg(feature = "nats")]
mod nats {
    use std::time::Duration;

    use nats_bus::{NatsBus, NatsDirect, NatsError, NatsLogin, NatsOptions, NatsStore, StoreOptions};
    use observability::error_chain;
    use replicas::RouterId;
    use tracing::{error, info};

    use super::BusOptions;

    /// Longest wait for the goodbye to be sent.
    const FLUSH: Duration = Duration::from_millis(500);

    /// Connections of a router.
    pub(crate) type Connections = super::BusConnections<NatsBus, NatsStore, NatsDirect>;

    /// Starts the connections, which are made in the background. `None` if their options are invalid.
    pub(crate) async fn start(options: BusOptions, router: RouterId) -> Option<Connections> {
        let (fleet, servers) = (&options.fleet, options.servers.join(", "));
        info!(%fleet, %servers, "connecting to the bus between routers; this router serves alone until it is connected");
        let store = StoreOptions {
            copies: options.agreed_copies,
            ..StoreOptions::default()
        };
        let options = NatsOptions {
            servers: options.servers,
            fleet: options.fleet,
            name: options.name,
            credentials: options.credentials,
            login: options.login.map(|login| NatsLogin {
                user: login.user,
                password_file: login.password_file,
            }),
            ca: options.ca,
        };
        let started = start_all(&options, store, router).await;
        started
            .inspect_err(|error| error!("{}: this router serves alone", error_chain(error)))
            .ok()
    }

    async fn start_all(
        options: &NatsOptions,
        store: StoreOptions,
        router: RouterId,
    ) -> Result<Connections, NatsError> {
        Ok(Connections {
            bus: NatsBus::start(options, router).await?,
            store: NatsStore::start(options, store).await?,
            direct: NatsDirect::start(options, router).await?,
        })
    }

    /// Sends what waits.
    pub(crate) async fn flush(bus: NatsBus) {
        bus.flush(FLUSH).await;
    }
}

#[cfg(not(feature = "nats"))]
mod without {
    use std::sync::Arc;

    use agreement::{
        AgreedKey, AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey, StoreError, StoreEvent,
        WriteOutcome,
    };
    use replicas::{Bus, BusEvent, DirectBus, DirectEvent, FleetSubject, RouterId};
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

    impl DirectBus for NoBus {
        fn send(&self, _: RouterId, _: Vec<u8>) -> bool {
            match *self {}
        }

        async fn next(&mut self) -> DirectEvent {
            match *self {}
        }
    }

    /// Store of a build that has none. It has no values.
    pub(crate) enum NoStore {}

    impl AgreedStore for NoStore {
        async fn next(&mut self) -> StoreEvent {
            match *self {}
        }

        async fn write(&mut self, _: &AgreedWrite) -> WriteOutcome {
            match *self {}
        }

        async fn read(&mut self, _: &AgreedKey) -> Result<Option<StoreEvent>, StoreError> {
            match *self {}
        }

        async fn report(&mut self, _: &ReportKey, _: Vec<u8>) -> Result<(), StoreError> {
            match *self {}
        }

        fn put_object(&self, _: &str, _: Arc<Vec<u8>>) -> ObjectWrite {
            match *self {}
        }

        fn object(&self, _: &str) -> ObjectRead {
            match *self {}
        }
    }

    /// Logs that the build has no bus.
    pub(crate) async fn start(
        options: BusOptions,
        _: RouterId,
    ) -> Option<super::BusConnections<NoBus, NoStore, NoBus>> {
        error!(
            fleet = %options.fleet,
            "failed to connect to the bus between routers: this program was built without the feature `nats`; \
             this router serves alone"
        );
        None
    }

    /// Sends nothing.
    pub(crate) async fn flush(bus: NoBus) {
        match bus {}
    }
}
