//! Kubernetes: the objects of a namespace that stand for workers, as lists and watches give them.
//!
//! Only the few fields that make a worker are read. [`KubeStore`] holds the objects of one list, and follows its watch.

mod endpoint_slice;
mod lines;
mod object;
mod pod;
mod store;

pub use self::lines::{LineBuffer, LineTooLong};
pub use self::object::KubeView;
pub use self::store::{KubeStore, KubeStoreError, ListPages, WatchChange};
