//! Names of the fleet's workers.

use std::collections::BTreeMap;

use routing::WorkerId;

/// Names of the fleet's workers.
pub type WorkerNames = BTreeMap<WorkerId, Box<str>>;
