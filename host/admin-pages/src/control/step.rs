//! Steps of a plan that can fail.

use std::fmt;

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $step:ident = $name:literal, $doing:literal;)+) => {
        /// A step of a plan that can fail, in the order in which they run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PlanStep {
            $($(#[doc = $doc])+ $step,)+
        }

        impl PlanStep {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$step,)+];

            /// Returns its name for programs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
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
    /// Sources of workers, and their thread.
    Sources = "sources", "preparing the sources of workers";
    /// Sockets of addresses that are new. The last one: clients may connect as soon as a socket is bound.
    Sockets = "sockets", "binding the sockets";
}
