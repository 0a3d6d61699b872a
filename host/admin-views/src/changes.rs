//! Changes of a running router: what changed, when, why, and with which result.

use std::collections::VecDeque;

use serde::{Serialize, Serializer};

use crate::query::{Query, QueryError};

/// Changes that are kept.
pub const CHANGES_KEPT: usize = 256;
/// Longest summary in characters.
const LONGEST_SUMMARY: usize = 512;

macro_rules! names {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $about:literal])+ $variant:ident = $text:literal;)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $about])+ $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns its name on pages, in logs and as a label.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

names! {
    /// Kind of a change.
    ChangeKind {
        /// Configuration that became active.
        ConfigApplied = "config-applied";
        /// Configuration that was refused.
        ConfigRefused = "config-refused";
        /// Policy with a new active version.
        PolicySwapped = "policy-swapped";
        /// Policy whose new version was refused.
        PolicyRefused = "policy-refused";
        /// Policy that went back to an earlier version.
        PolicyRolledBack = "policy-rolled-back";
        /// Policy that goes on with its file.
        PolicyResumed = "policy-resumed";
        /// Policy whose circuit opened.
        CircuitOpened = "circuit-opened";
        /// Canary that the stop rule stopped.
        CanaryStopped = "canary-stopped";
        /// Canary that an operator resumed.
        CanaryResumed = "canary-resumed";
        /// Route with other policies than the file has.
        RouteChanged = "route-changed";
        /// Worker that left service because of its health.
        WorkerEjected = "worker-ejected";
        /// Worker that is back in service.
        WorkerReturned = "worker-returned";
        /// Worker that an operator drains.
        WorkerDrained = "worker-drained";
        /// Drained worker that an operator resumed.
        WorkerResumed = "worker-resumed";
        /// Worker that was added over HTTP.
        InstanceAdded = "instance-added";
        /// Worker whose role was changed over HTTP.
        InstanceChanged = "instance-changed";
        /// Worker that was removed over HTTP.
        InstanceRemoved = "instance-removed";
        /// Workers of a source outside the file that came, changed or went.
        WorkersDiscovered = "workers-discovered";
    }
}

names! {
    /// Cause of a change.
    ChangeCause {
        /// Start of the router.
        Start = "start";
        /// Edited file.
        File = "file";
        /// SIGHUP.
        Signal = "signal";
        /// Request to an admin page.
        Api = "api";
        /// File of the policy folder.
        Folder = "folder";
        /// Circuit breaker of a policy.
        Circuit = "circuit";
        /// Stop rule of a canary.
        Trial = "trial";
        /// Health of a worker.
        Health = "health";
        /// Source of workers outside the file.
        Discovery = "discovery";
    }
}

names! {
    /// Result of a change.
    ChangeResult {
        /// The change is active.
        Applied = "applied";
        /// Nothing changed.
        Refused = "refused";
    }
}

/// Change that is to be noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewChange {
    /// Generation of the configuration after it.
    pub generation: u64,
    /// Kind.
    pub kind: ChangeKind,
    /// Cause.
    pub cause: ChangeCause,
    /// Reason that the operator gave.
    pub by: Option<String>,
    /// One sentence.
    pub summary: String,
    /// Result.
    pub result: ChangeResult,
    /// Number of problems of a refused change.
    pub problems: usize,
}

/// Noted change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Number, from 1.
    pub id: u64,
    /// Seconds since 1970.
    pub at: f64,
    /// The change, its texts cut.
    #[serde(flatten)]
    pub noted: NewChange,
}

/// Ring of the latest changes.
#[derive(Debug, Default)]
pub struct ChangeRing {
    changes: VecDeque<Change>,
    last: u64,
}

impl NewChange {
    /// Returns a change that was applied.
    #[must_use]
    pub fn applied(kind: ChangeKind, cause: ChangeCause, summary: impl Into<String>) -> Self {
        Self {
            generation: 0,
            kind,
            cause,
            by: None,
            summary: summary.into(),
            result: ChangeResult::Applied,
            problems: 0,
        }
    }

    /// Returns it with the generation after it.
    #[must_use]
    pub fn in_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }
}

impl ChangeRing {
    /// Adds a change of the time `at`. The oldest one of a full ring is dropped.
    pub fn add(&mut self, at: f64, new: NewChange) -> &Change {
        if self.changes.len() == CHANGES_KEPT {
            self.changes.pop_front();
        }
        self.last += 1;
        let change = Change {
            id: self.last,
            at,
            noted: NewChange {
                by: new.by.map(|by| cut(&by)),
                summary: cut(&new.summary),
                ..new
            },
        };
        self.changes.push_back(change);
        &self.changes[self.changes.len() - 1]
    }

    /// Returns the newest changes, newest first.
    #[must_use]
    pub fn latest(&self, limit: usize) -> Vec<Change> {
        self.changes.iter().rev().take(limit).cloned().collect()
    }

    /// Returns the changes after a number, oldest first.
    #[must_use]
    pub fn since(&self, id: u64) -> Vec<Change> {
        let newer = self.changes.iter().filter(|change| change.id > id);
        newer.cloned().collect()
    }
}

/// Parses `limit` of the query string of a list of changes.
///
/// # Errors
/// [`QueryError`].
pub fn changes_limit(query: &str) -> Result<usize, QueryError> {
    let query = Query::parse(query, &["limit"])?;
    let limit = query.number("limit", "a number from 1 to 256", |limit| {
        (1..=CHANGES_KEPT).contains(limit)
    })?;
    Ok(limit.unwrap_or(CHANGES_KEPT))
}

/// Returns the beginning of a text without control characters, which could forge a line of the log.
fn cut(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(LONGEST_SUMMARY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(summary: &str) -> NewChange {
        NewChange::applied(ChangeKind::ConfigApplied, ChangeCause::File, summary).in_generation(2)
    }

    #[test]
    fn the_ring_keeps_the_newest_changes_and_numbers_go_on() {
        let mut ring = ChangeRing::default();
        for number in 0..CHANGES_KEPT + 3 {
            ring.add(number as f64, applied("x"));
        }
        let latest = ring.latest(usize::MAX);
        assert_eq!(latest.len(), CHANGES_KEPT);
        assert_eq!(latest[0].id, ring.last);
        assert_eq!(latest[CHANGES_KEPT - 1].id, 4);
        let newer: Vec<_> = ring.since(ring.last - 2).iter().map(|change| change.id).collect();
        assert_eq!(newer, [ring.last - 1, ring.last]);
    }

    #[test]
    fn summaries_are_bounded() {
        let mut ring = ChangeRing::default();
        let change = ring.add(1.0, applied(&"é".repeat(2_000)));
        assert_eq!(change.noted.summary.chars().count(), LONGEST_SUMMARY);
    }

    #[test]
    fn a_change_has_names_for_programs() {
        let mut ring = ChangeRing::default();
        let change = serde_json::to_value(ring.add(1.0, applied("x"))).unwrap();
        assert_eq!(change["kind"], "config-applied");
        assert_eq!(
            (&change["cause"], &change["result"]),
            (&"file".into(), &"applied".into())
        );
        assert_eq!(change["by"], serde_json::Value::Null);
    }

    #[test]
    fn the_limit_of_a_list_is_bounded() {
        assert_eq!(changes_limit("").unwrap(), CHANGES_KEPT);
        assert_eq!(changes_limit("limit=3").unwrap(), 3);
        assert!(changes_limit("limit=257").is_err() && changes_limit("limit=0").is_err());
    }
}
