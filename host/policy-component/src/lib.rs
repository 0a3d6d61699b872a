//! What compilers leave, as bytes: looked into, and turned into components.
//!
//! Pure: bytes in, values out. It runs nothing and does not know what a policy does; whether a component fits the contract
//! is for `policy-runtime` to say, which loads it.

mod anatomy;
mod componentise;

pub use anatomy::{Anatomy, Layer, NotWebAssembly, Producer, dissect};
pub use componentise::{ComponentError, componentise};

/// The contract between the router and a policy, as text: what projects of policies are built against.
pub const CONTRACT: &str = include_str!("../../../wit/policy.wit");
