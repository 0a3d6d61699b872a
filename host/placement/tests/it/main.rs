//! Tests of the placement procedure over a view of fixed values.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod decisions;
mod eligibility;
mod fixed;
mod kept_columns;
