//! Exports of a component: `describe` always, a decision or a score, and optional ones.

use wasmtime::AsContextMut;
use wasmtime::component::{Instance, InstancePre};

use crate::bindings::{events, parameters, policy, schedule, score, tick};
use crate::guest::GuestState;

macro_rules! exports {
    ($($(#[$doc:meta])* $interface:ident,)*) => {
        /// Positions of a component's exports.
        pub(crate) struct ExportIndices {
            policy: policy::GuestIndices,
            $($interface: Option<$interface::GuestIndices>,)*
        }

        /// The exports of an instance.
        pub(crate) struct Exports {
            pub(crate) policy: policy::Guest,
            $($(#[$doc])* pub(crate) $interface: Option<$interface::Guest>,)*
        }

        impl ExportIndices {
            /// Finds the exports of the component whose interfaces `has` names.
            pub(crate) fn new(
                component: &InstancePre<GuestState>,
                has: impl Fn(&str) -> bool,
            ) -> wasmtime::Result<Self> {
                Ok(Self {
                    policy: policy::GuestIndices::new(component)?,
                    $($interface: has(stringify!($interface))
                        .then(|| $interface::GuestIndices::new(component))
                        .transpose()?,)*
                })
            }

            pub(crate) fn load(
                &self,
                mut store: impl AsContextMut<Data = GuestState>,
                instance: &Instance,
            ) -> wasmtime::Result<Exports> {
                Ok(Exports {
                    policy: self.policy.load(&mut store, instance)?,
                    $($interface: self.$interface
                        .as_ref()
                        .map(|indices| indices.load(&mut store, instance))
                        .transpose()?,)*
                })
            }
        }
    };
}

impl ExportIndices {
    pub(crate) fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    pub(crate) fn has_score(&self) -> bool {
        self.score.is_some()
    }
}

exports! {
    schedule,
    score,
    events,
    tick,
    parameters,
}
