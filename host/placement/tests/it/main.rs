//! Tests of the placement procedure over a view of fixed values.

mod decisions;
mod eligibility;
mod fixed;
