//! SDK for Conductor scheduling policies in Rust: one trait, native tests, one macro.
//!
//! A policy implements [`Policy`] and names its type in [`export_policy!`]. Compiled to WebAssembly it is a
//! component for the world `scheduler` of `wit/policy.wit`. Compiled natively it is ordinary Rust, driven by
//! [`testing::Scenario`]. The SDK does not depend on the router; the contract is the WIT alone.
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

mod bounded_load_hash;
mod call;
mod event;
mod forecast;
mod hash;
mod heavy_hitters;
mod host;
mod lanes;
mod load;
mod number_text;
mod pairing;
mod params;
mod plan;
mod policy;
mod prefix;
mod prefix_key;
mod price;
mod prompt_length;
mod scorer;
mod session_home;
mod speed;
mod verdict;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest_scorer;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use bounded_load_hash::BoundedLoadHash;
pub use call::{Call, LeastCost, OptionalNumber, Phase, Request, Row, WorkerId};
pub use event::{Event, EventKind, Events, Tick};
pub use forecast::{CallForecast, Forecast, PrefixFetch};
pub use hash::mix;
pub use host::{Host, Level, Role, StateError, Tier, WorkerInfo};
pub use lanes::{EachNumber, Lanes, LanesMask, Number, NumberMask, Numbers, RowPair};
pub use load::WorkerLoad;
pub use pairing::{CallCosts, OwnCosts, Pairing, PlacementChoice};
pub use params::{Parameter, Params};
pub use plan::{Column, Columns, Plan, RequestNumber, RoleColumn};
pub use policy::{Configured, Policy, parameters};
pub use prefix::{PrefixMatches, TierMatches};
pub use prefix_key::PrefixKey;
pub use price::{Price, QueuedLoad, Quote};
pub use scorer::{ConfiguredScorer, Scorer, scorer_parameters};
pub use session_home::SessionHome;
pub use verdict::Verdict;

/// Exports the given type as the component's policy. On native targets it expands to nothing, so the same
/// crate is also a plain library.
///
/// A policy that implements [`Events`] or [`Tick`] lists them: `export_policy!(Mine, events)`,
/// `export_policy!(Mine, tick)`, `export_policy!(Mine, events, tick)`.
///
/// The crate must be a `cdylib` (for the component). It may also be an `rlib` (for tests and benches).
#[macro_export]
macro_rules! export_policy {
    ($policy:ty $(, $more:ident)*) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            static INSTANCE: $crate::guest::PolicyInstance<$policy> = $crate::guest::PolicyInstance::new();

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

            impl $crate::guest::ParametersExport for Component {
                fn parameters() -> ::std::vec::Vec<$crate::guest::Parameter> {
                    $crate::guest::parameters::<$policy>()
                }
            }

            $crate::bindings::export_base!(Component with_types_in $crate::bindings);
            $crate::bindings::schedule::export_schedule!(Component with_types_in $crate::bindings::schedule);
            $crate::bindings::parameters::export_parameters!(Component with_types_in $crate::bindings::parameters);
            $($crate::export_more!($more, $policy, INSTANCE, Component);)*
        };
    };
}

/// Expands the optional interfaces of [`export_policy!`] and [`export_scorer!`], one at a time.
#[doc(hidden)]
#[macro_export]
macro_rules! export_more {
    (events, $policy:ty, $instance:ident, $component:ident) => {
        impl $crate::guest::EventsExport for $component {
            fn subscribe() -> ::std::vec::Vec<::std::string::String> {
                $crate::guest::subscribe::<$policy>()
            }
            fn handle(batch: ::std::vec::Vec<$crate::guest::Event>) {
                $instance.handle(&batch)
            }
        }

        $crate::bindings::events::export_events!($component with_types_in $crate::bindings::events);
    };
    (tick, $policy:ty, $instance:ident, $component:ident) => {
        impl $crate::guest::TickExport for $component {
            fn tick() -> u32 {
                $instance.tick()
            }
        }

        $crate::bindings::tick::export_tick!($component with_types_in $crate::bindings::tick);
    };
}

/// Exports the given type as the component's scorer, as [`export_policy!`] does for a policy; also takes
/// `events` and `tick`.
#[macro_export]
macro_rules! export_scorer {
    ($scorer:ty $(, $more:ident)*) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            static INSTANCE: $crate::guest_scorer::ScorerInstance<$scorer> = $crate::guest_scorer::ScorerInstance::new();

            struct Component;

            impl $crate::guest::PolicyExport for Component {
                fn describe() -> $crate::guest::Manifest {
                    $crate::guest_scorer::describe::<$scorer>()
                }
                fn configure(
                    params: ::std::string::String,
                ) -> ::std::result::Result<$crate::guest::Plan, ::std::string::String> {
                    INSTANCE.configure(&params)
                }
            }

            impl $crate::guest_scorer::ScoreExport for Component {
                fn score(
                    request: $crate::guest::Request,
                    candidates: $crate::guest::Candidates,
                ) -> ::std::vec::Vec<f64> {
                    INSTANCE.score(&request, &candidates)
                }
            }

            impl $crate::guest::ParametersExport for Component {
                fn parameters() -> ::std::vec::Vec<$crate::guest::Parameter> {
                    $crate::guest_scorer::parameters::<$scorer>()
                }
            }

            $crate::bindings::export_base!(Component with_types_in $crate::bindings);
            $crate::bindings::score::export_score!(Component with_types_in $crate::bindings::score);
            $crate::bindings::parameters::export_parameters!(Component with_types_in $crate::bindings::parameters);
            $($crate::export_more!($more, $scorer, INSTANCE, Component);)*
        };
    };
}
