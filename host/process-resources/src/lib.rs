//! Resources of this process: the limit of open files, the memory limit of its control group, and metrics of the
//! process and its runtime.

mod memory_limit;
mod metrics;
mod open_files;

pub use memory_limit::{control_group_limit, room_for_child};
pub use metrics::{measure_delay, register};
pub use open_files::{check_open_files, raise_open_files};
