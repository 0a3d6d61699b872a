//! NATS between the routers of a fleet: a bus with core publish and subscribe, and a store with JetStream.
//!
//! The clients connect in the background and connect again for as long as they live, so a router starts and serves
//! without a server. Bus, store and direct messages have a connection each: bytes of a policy or of an index never
//! delay loads. Subjects of the bus are `conductor.FLEET.KIND.ROUTER`, those of direct messages
//! `conductor.FLEET.direct.TO.FROM`. Buckets of the store are named by the fleet: a fleet receives only its own.

mod bus;
mod client;
mod direct;
mod faults;
mod open_store;
mod secret_file;
mod store;
mod store_error;
mod subject;
mod subscription;
mod user_key;

pub use bus::NatsBus;
pub use client::{NatsError, NatsLogin, NatsOptions};
pub use direct::NatsDirect;
pub use store::{NatsStore, StoreOptions};
