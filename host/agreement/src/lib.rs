//! Decisions that the routers of one fleet agree on, as values and pure functions.
//!
//! A decision is an entry of a store with revisions, under a key of its subject. A router proposes an entry over the
//! latest revision it has, or over the one by which it judged, and the store accepts one proposal for each revision.
//! [`Agreement`] is one router's view: it decides at once for itself, and follows the store where another router's
//! proposal was accepted. The crate has no store: [`AgreedStore`] is its trait.

mod entry;
mod key;
mod proposal;
mod states;
mod store;
mod view;

pub use entry::{AgreedEntry, EntryError, Judged, MOST_ENTRY_BYTES};
pub use key::{AgreedKey, AgreedKind};
pub use states::{RouterStates, SubjectState};
pub use store::{
    AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey, StoreError, StoreEvent, WriteOutcome,
};
pub use view::{Agreement, AgreementCounts, KnownEntry, MOST_ENTRIES};
