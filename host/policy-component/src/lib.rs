//! WebAssembly output of compilers: inspected, and converted to components.
//!
//! Pure: bytes in, values out. It runs nothing and does not know the meaning of policies. `policy-runtime` loads
//! components and checks them against the contract.

mod anatomy;
mod componentise;

pub use anatomy::{Anatomy, Layer, NotWebAssembly, Producer, dissect};
pub use componentise::{ComponentError, componentise};

/// The contract between the router and a policy as text, for policy projects.
pub const CONTRACT: &str = include_str!("../../../wit/policy.wit");
