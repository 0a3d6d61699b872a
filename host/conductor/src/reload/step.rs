//! Steps of a plan that can fail. Every one of them runs through [`Steps::run`]: nothing else makes a [`RefusedPlan`],
//! so a step that is not in the list does not compile.

use std::fmt;

use thiserror::Error;

use super::RefusedConfig;

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $step:ident = $name:literal, $doing:literal;)+) => {
        /// A step of a plan that can fail, in the order in which they run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum PlanStep {
            $($(#[doc = $doc])+ $step,)+
        }

        impl PlanStep {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$step,)+];

            /// Returns its name for programs.
            #[must_use]
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$step => $name,)+
                }
            }
        }

        impl fmt::Display for PlanStep {
            /// Ends a sentence that begins with "while".
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$step => $doing,)+
                })
            }
        }
    };
}

steps! {
    /// The configuration's text.
    ReadFile = "read-file", "reading the configuration";
    /// The text as a configuration.
    Parse = "parse", "parsing the configuration";
    /// Policies: their bytes, their parameters, a trial of each.
    LoadPolicies = "load-policies", "loading the policies";
    /// Keys of clients, workers and operators.
    ReadKeys = "read-keys", "reading the keys";
    /// Certificates, their keys, and authorities.
    ReadCertificates = "read-certificates", "reading the certificates";
    /// Tokenizers and chat templates.
    ReadTokenizers = "read-tokenizers", "reading the tokenizers";
    /// The filter of log lines.
    LogLevel = "log-level", "parsing the log level";
    /// Pipelines, made of policies.
    Pipelines = "pipelines", "building the pipelines";
    /// Pools, workers and routes.
    RequestPath = "request-path", "building the request path";
    /// The threads that write the decision log, the shadow log and the access log.
    RecordFiles = "record-files", "starting the logs of requests";
    /// The collector of traces, and the thread that sends them.
    Traces = "traces", "preparing the export of traces";
    /// The list of KV-event feeds.
    Feeds = "feeds", "checking the event feeds";
    /// Sockets of addresses that are new. The last one: clients may connect as soon as a socket is bound.
    Sockets = "sockets", "binding the sockets";
}

/// Runs the steps of a plan.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// A step that fails once its work is done. The router sets none; tests set each in turn.
    pub(crate) fault: Option<PlanStep>,
}

impl Steps {
    /// Runs one step.
    ///
    /// # Errors
    /// [`RefusedPlan`] where its work fails.
    pub(crate) fn run<T>(
        &self,
        step: PlanStep,
        work: impl FnOnce() -> Result<T, RefusedConfig>,
    ) -> Result<T, RefusedPlan> {
        let done = work().and_then(|done| match self.fault {
            Some(fault) if fault == step => Err(RefusedConfig::Fault),
            _ => Ok(done),
        });
        done.map_err(|reason| RefusedPlan { step, reason })
    }
}

/// A plan that failed. Nothing that was active before has changed.
#[derive(Debug, Error)]
#[error("refused while {step}")]
pub(crate) struct RefusedPlan {
    step: PlanStep,
    #[source]
    reason: RefusedConfig,
}

impl RefusedPlan {
    /// Returns the failed step.
    #[must_use]
    pub(crate) fn step(&self) -> PlanStep {
        self.step
    }

    /// Returns the reason.
    #[must_use]
    pub(crate) fn reason(&self) -> &RefusedConfig {
        &self.reason
    }

    /// Returns the reason by value.
    #[must_use]
    pub(crate) fn into_reason(self) -> RefusedConfig {
        self.reason
    }
}
