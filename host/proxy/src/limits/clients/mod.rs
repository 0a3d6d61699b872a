//! API clients: authentication by key, allowed models, and rate limits.
//!
//! A key is hashed once and looked up by its hash; neither the file nor the memory holds a key. The comparison of
//! hashes is not constant-time, which reveals nothing: a key cannot be chosen by the beginning of its SHA-256. This
//! module does not depend on the source of the keys.

mod client_table;
mod debt_excess;
mod key;
mod limit_clock;
mod limits;
mod metrics;
mod principal;
mod ratelimit_headers;
mod reservation;
mod rights;
mod spec;
mod usage_share;

pub(crate) use self::client_table::Clients;
pub use self::debt_excess::DebtExcess;
pub use self::key::KeyHash;
pub use self::limits::{BucketUse, ClientLimit};
pub(crate) use self::metrics::ClientFamilies;
pub(crate) use self::principal::Principal;
pub(crate) use self::reservation::{RateLimitGuard, UsageBound};
pub(crate) use self::rights::FieldCheck;
pub use self::spec::{ClientLimits, ClientSpec, EngineFields};
pub use self::usage_share::ClientShare;

#[cfg(test)]
mod tests;
