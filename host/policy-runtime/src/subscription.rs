//! Event subscription of a policy: kinds of events by name, and their numbers for the policy.

use routing::{EventKind, EventKinds};
use thiserror::Error;

use crate::text::one_line;

/// Most kinds that a policy may name.
const MAX_KINDS: usize = 64;
/// Longest name of an unknown kind in an error, in bytes.
const MAX_NAME: usize = 256;

/// A policy subscribes to an unknown event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubscribeError {
    /// No such kind.
    #[error("subscribe to `{name}`: the events are {}", known().join(", "))]
    Unknown {
        /// The name sent.
        name: String,
    },
    /// More kinds than will ever exist.
    #[error("subscribe to {0} kinds of events: the maximum is {MAX_KINDS}")]
    TooMany(usize),
}

/// Result of a policy's `subscribe`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventSubscription {
    /// Names as sent, with `?` for optional ones.
    pub(crate) names: Vec<String>,
    /// Resolved kinds; `None` for unknown optional ones.
    kinds: Vec<Option<EventKind>>,
}

impl EventSubscription {
    pub(crate) fn resolve(names: Vec<String>) -> Result<Self, SubscribeError> {
        if names.len() > MAX_KINDS {
            return Err(SubscribeError::TooMany(names.len()));
        }
        let kinds = names.iter().map(|name| kind(name)).collect::<Result<_, _>>()?;
        Ok(Self { names, kinds })
    }

    pub(crate) fn kinds(&self) -> EventKinds {
        self.kinds.iter().flatten().copied().collect()
    }

    /// Returns the policy's number of a kind.
    pub(crate) fn position(&self, kind: EventKind) -> Option<u32> {
        let position = self.kinds.iter().position(|known| *known == Some(kind))?;
        u32::try_from(position).ok()
    }
}

fn kind(name: &str) -> Result<Option<EventKind>, SubscribeError> {
    let bare = name.strip_suffix('?');
    let kind = EventKind::find(bare.unwrap_or(name));
    if kind.is_none() && bare.is_none() {
        return Err(SubscribeError::Unknown {
            name: one_line(name, MAX_NAME),
        });
    }
    Ok(kind)
}

fn known() -> Vec<&'static str> {
    EventKind::ALL.map(EventKind::as_str).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(names: &[&str]) -> Result<EventSubscription, SubscribeError> {
        EventSubscription::resolve(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn an_unknown_event_is_named_in_one_short_line() {
        let name = format!("\u{1b}[2J\n{}", "n".repeat(70_000));
        let Err(SubscribeError::Unknown { name }) = resolve(&[&name]) else {
            panic!("another result");
        };
        assert_eq!(name.len(), MAX_NAME);
        assert!(!name.contains(char::is_control));
    }

    #[test]
    fn kinds_are_reported_by_their_position_and_what_may_be_unknown_never_happens() {
        let wanted = resolve(&["moon.full?", "worker.left", "request.failed?"]).unwrap();
        assert_eq!(wanted.position(EventKind::Left), Some(1));
        assert_eq!(wanted.position(EventKind::Failed), Some(2));
        assert_eq!(wanted.position(EventKind::Joined), None);
        let kinds = EventKinds::NONE.with(EventKind::Left).with(EventKind::Failed);
        assert_eq!(wanted.kinds(), kinds);
    }

    #[test]
    fn an_unknown_kind_is_refused_and_the_known_ones_are_listed() {
        let message = resolve(&["worker.joined", "moon.full"]).unwrap_err().to_string();
        assert!(message.contains("`moon.full`"), "{message}");
        assert!(
            EventKind::ALL.iter().all(|kind| message.contains(kind.as_str())),
            "{message}"
        );
        let many = vec!["x?".to_owned(); 65];
        assert_eq!(EventSubscription::resolve(many), Err(SubscribeError::TooMany(65)));
    }
}
