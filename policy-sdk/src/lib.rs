//! Write a Conductor scheduling policy in Rust: one small trait, native tests, one macro.
//!
//! A policy implements [`Policy`] and names itself in [`export_policy!`]; compiled to WebAssembly it is a
//! component for the world `scheduler` of `wit/policy.wit`, compiled natively it is ordinary Rust that
//! [`testing::Scenario`] drives. Nothing here knows the router: the contract is the WIT alone.
//!
//! ```
//! use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Policy, Verdict, export_policy};
//!
//! /// Sends to the worker with the fewest requests in flight.
//! struct Least {
//!     requests: Column,
//! }
//!
//! impl Policy for Least {
//!     const NAME: &'static str = "least";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!
//!     fn configure(_: &mut Params, plan: &mut Plan) -> Self {
//!         Self { requests: plan.column("load.requests") }
//!     }
//!
//!     fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
//!         Verdict::route_to(call.least(|| host.random(), |row| row.get(self.requests)))
//!     }
//! }
//!
//! export_policy!(Least);
//! ```

mod call;
mod hash;
mod host;
mod params;
mod plan;
mod policy;
mod verdict;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use call::{Call, Known, Least, Phase, Request, Row, WorkerId};
pub use hash::mix;
pub use host::{About, Host, Level, Refusal, Role, Tier};
pub use params::Params;
pub use plan::{Column, Plan, RequestNumber, RoleColumn};
pub use policy::{Configured, Policy};
pub use verdict::Verdict;

/// Makes the crate a component whose policy is the given type. On native targets it expands to nothing, so the
/// same crate is also a plain library.
///
/// The crate must be a `cdylib` (for the component) and may be an `rlib` too (for tests and benches).
#[macro_export]
macro_rules! export_policy {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            static INSTANCE: $crate::guest::Instance<$policy> = $crate::guest::Instance::new();

            struct Component;

            impl $crate::guest::PolicyExport for Component {
                fn describe() -> $crate::guest::Manifest {
                    $crate::guest::describe::<$policy>()
                }
                fn configure(
                    params: ::std::string::String,
                ) -> ::std::result::Result<$crate::guest::Plan, ::std::string::String> {
                    INSTANCE.configure(&params)
                }
            }

            impl $crate::guest::ScheduleExport for Component {
                fn schedule(
                    request: $crate::guest::Request,
                    candidates: $crate::guest::Candidates,
                ) -> $crate::guest::Verdict {
                    INSTANCE.schedule(&request, &candidates)
                }
            }

    $crate::bindings::export_scheduler!(Component with_types_in $crate::bindings);
        };
    };
}
