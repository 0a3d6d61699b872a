//! Runtime overrides: changes of instances and routes over HTTP, laid over the configuration file.
//!
//! An override is kept while the file's settings of its instance or route are the same, and ends when they change.
//! Values in, values out: the reload applies them.

mod instances;
mod routes;

pub use instances::{
    Addition, ChangeError, Changed, Done, DrainChange, Ended, EndedReport, InstanceChange, NotShared,
    OverlayKind, OverlayReport, Overlays, Removal, SharedInstance,
};
pub use routes::{
    OverrideReport, RouteAction, RouteChange, RouteChangeError, RouteOverrides, SavedOverridesError,
    SharedOverride,
};
