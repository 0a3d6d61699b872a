//! Rule of one flag of another router.

use routing::Role;

/// Flag with its meaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlagRule {
    /// Name with its dashes.
    pub(crate) name: &'static str,
    /// Number of words after it that belong to it.
    pub(crate) takes: Takes,
    /// Meaning here.
    pub(crate) effect: Effect,
}

/// Words after a flag that belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// None: it is a switch.
    Nothing,
    /// One.
    One,
    /// All up to the next flag.
    Many,
}

/// Key of a table.
pub(crate) type KeyPlace = (&'static str, &'static str);

/// Meaning of a flag.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Text of a key.
    Text(KeyPlace),
    /// Whole number of a key. A negative one means no limit, and sets nothing.
    Number(KeyPlace),
    /// Whole number of a key, unless this other flag sets the key.
    NumberAfter(KeyPlace, &'static str),
    /// Number of attempts; 0 counts as 1.
    Attempts(KeyPlace),
    /// Time with this unit.
    Time(KeyPlace, &'static str),
    /// The same time of several keys.
    Times(&'static [KeyPlace], &'static str),
    /// Size with this unit.
    Size(KeyPlace, &'static str),
    /// List of texts.
    List(KeyPlace),
    /// Value of a key for the switch, as TOML.
    Fixed(KeyPlace, &'static str),
    /// Address or port of the listener for clients.
    Host,
    /// Port of the listener for clients.
    Port,
    /// Port of the metrics.
    AdminPort,
    /// Workers.
    Workers(Role),
    /// Worker, perhaps with the port of its bootstrap server.
    Bootstrapped(Role),
    /// Number of data-parallel ranks of every worker.
    Ranks,
    /// Model of each worker, in their order.
    Models,
    /// Policy of the route: the key, and the other router's names with ours.
    Policy(&'static str, &'static [(&'static str, &'static str)]),
    /// Table of assumed caches.
    AssumedCaches,
    /// Key for the workers. It is not written into the text.
    EngineKey,
    /// Level of the log.
    LogLevel,
    /// Dialect of the handover: names with ours.
    Dialect(&'static [(&'static str, &'static str)]),
    /// Handover between prefill and decode workers.
    Split(&'static str),
    /// Labels of workers in Kubernetes.
    Selector(Option<Role>),
    /// Namespace in Kubernetes.
    Namespace,
    /// Port of workers in Kubernetes.
    WorkerPort,
    /// Nothing is needed, for this reason.
    Needless(&'static str),
    /// There is no equivalent; the text is the remedy.
    Absent(&'static str),
}

impl Effect {
    /// Returns its place in the order of application: a later effect takes precedence.
    pub(crate) fn rank(self) -> u8 {
        match self {
            // A flag of one key takes precedence over one of several keys, and a named dialect over a switch.
            Self::Times(..) | Self::Split(_) => 0,
            // A switch turns off what other flags configure, and models belong to workers.
            Self::Fixed(..) | Self::Models => 2,
            // It sets what no other flag has set.
            Self::NumberAfter(..) => 3,
            _ => 1,
        }
    }
}

/// Returns a rule of a switch.
pub(crate) const fn switch(name: &'static str, effect: Effect) -> FlagRule {
    FlagRule {
        name,
        takes: Takes::Nothing,
        effect,
    }
}

/// Returns a rule of a flag with one value.
pub(crate) const fn one(name: &'static str, effect: Effect) -> FlagRule {
    FlagRule {
        name,
        takes: Takes::One,
        effect,
    }
}

/// Returns a rule of a flag with any number of values.
pub(crate) const fn many(name: &'static str, effect: Effect) -> FlagRule {
    FlagRule {
        name,
        takes: Takes::Many,
        effect,
    }
}
