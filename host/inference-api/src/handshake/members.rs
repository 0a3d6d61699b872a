//! Members of a body's top-level object that handshakes change: their positions, and editing in place.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::HandshakeError;

/// A member that a handshake reads, sets or drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeMember {
    MaxTokens,
    MaxCompletionTokens,
    MinTokens,
    N,
    Stream,
    StreamOptions,
    Stop,
    StopTokenIds,
    IgnoreEos,
    ReturnTokenIds,
    ReturnRoutedExperts,
    Prompt,
    // Only a router writes these.
    KvTransferParams,
    BootstrapHost,
    BootstrapPort,
    BootstrapRoom,
    BootstrapPairKey,
    RoutedDpRank,
    DataParallelRank,
    DisaggPrefillDpRank,
}

impl HandshakeMember {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "max_tokens" => Self::MaxTokens,
            "max_completion_tokens" => Self::MaxCompletionTokens,
            "min_tokens" => Self::MinTokens,
            "n" => Self::N,
            "stream" => Self::Stream,
            "stream_options" => Self::StreamOptions,
            "stop" => Self::Stop,
            "stop_token_ids" => Self::StopTokenIds,
            "ignore_eos" => Self::IgnoreEos,
            "return_token_ids" => Self::ReturnTokenIds,
            "return_routed_experts" => Self::ReturnRoutedExperts,
            "prompt" => Self::Prompt,
            "kv_transfer_params" => Self::KvTransferParams,
            "bootstrap_host" => Self::BootstrapHost,
            "bootstrap_port" => Self::BootstrapPort,
            "bootstrap_room" => Self::BootstrapRoom,
            "bootstrap_pair_key" => Self::BootstrapPairKey,
            "routed_dp_rank" => Self::RoutedDpRank,
            "data_parallel_rank" => Self::DataParallelRank,
            "disagg_prefill_dp_rank" => Self::DisaggPrefillDpRank,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MinTokens => "min_tokens",
            Self::N => "n",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::Stop => "stop",
            Self::StopTokenIds => "stop_token_ids",
            Self::IgnoreEos => "ignore_eos",
            Self::ReturnTokenIds => "return_token_ids",
            Self::ReturnRoutedExperts => "return_routed_experts",
            Self::Prompt => "prompt",
            Self::KvTransferParams => "kv_transfer_params",
            Self::BootstrapHost => "bootstrap_host",
            Self::BootstrapPort => "bootstrap_port",
            Self::BootstrapRoom => "bootstrap_room",
            Self::BootstrapPairKey => "bootstrap_pair_key",
            Self::RoutedDpRank => "routed_dp_rank",
            Self::DataParallelRank => "data_parallel_rank",
            Self::DisaggPrefillDpRank => "disagg_prefill_dp_rank",
        }
    }

    fn is_the_routers(self) -> bool {
        matches!(
            self,
            Self::KvTransferParams
                | Self::BootstrapHost
                | Self::BootstrapPort
                | Self::BootstrapRoom
                | Self::BootstrapPairKey
                | Self::RoutedDpRank
                | Self::DataParallelRank
                | Self::DisaggPrefillDpRank
        )
    }
}

/// Change of a member.
#[derive(Debug)]
pub(super) enum MemberChange {
    /// Sets this JSON as its value; it is appended if absent.
    Set(Cow<'static, str>),
    /// Removes it.
    Drop,
}

/// Changes with each member at most once. All occurrences are changed; added members keep this order.
pub(super) type MemberChanges = Vec<(HandshakeMember, MemberChange)>;

/// Most positions that are kept; a body with each member once has fewer than a third.
const MOST_PLACES: usize = 64;

/// Position of a member as offsets into the body.
#[derive(Debug, Clone)]
struct MemberPosition {
    member: HandshakeMember,
    /// Number of members before it.
    rank: usize,
    key: usize,
    value: Range<usize>,
}

/// Changeable members of a body, in its order. A repeated member has several positions; the last counts.
#[derive(Debug, Clone)]
pub(super) struct BodyMembers {
    places: Vec<MemberPosition>,
    /// Number of members of the object.
    count: usize,
    /// End of the last member's value; after the opening brace if there is none.
    end: usize,
}

impl BodyMembers {
    pub(super) fn find(body: &[u8]) -> Result<Self, HandshakeError> {
        let invalid = |source| HandshakeError::Invalid { source };
        let mut reader = serde_json::Deserializer::from_slice(body);
        let members = reader.deserialize_map(MemberFinder { body }).map_err(invalid)?;
        reader.end().map_err(invalid)?;
        if members.places.len() > MOST_PLACES {
            return Err(HandshakeError::Crowded { most: MOST_PLACES });
        }
        let forged =
            |place: &&MemberPosition| place.member.is_the_routers() && &body[place.value.clone()] != b"null";
        match members.places.iter().find(forged) {
            Some(place) => Err(HandshakeError::Forged {
                member: place.member.name(),
            }),
            None => Ok(members),
        }
    }

    /// Returns the JSON of a member's value (the last one of a repeated name), unless it is absent or null.
    pub(super) fn value<'a>(&self, body: &'a [u8], member: HandshakeMember) -> Option<&'a str> {
        let place = self.places.iter().rfind(|place| place.member == member)?;
        let value = std::str::from_utf8(&body[place.value.clone()]).expect("JSON that was read is UTF-8");
        (value != "null").then_some(value)
    }

    /// Applies the changes in one copy; without changes returns the body itself.
    pub(super) fn edit(&self, body: &Bytes, changes: &MemberChanges) -> Bytes {
        let is_so_already = |(member, change): &(HandshakeMember, MemberChange)| match change {
            MemberChange::Set(value) => self.value(body, *member) == Some(value),
            MemberChange::Drop => false,
        };
        if changes.iter().all(is_so_already) {
            return body.clone();
        }
        let added = changes.iter().map(|(member, change)| match change {
            // Two quotes, a colon, a comma.
            MemberChange::Set(value) => member.name().len() + value.len() + 4,
            MemberChange::Drop => 0,
        });
        let mut edit = BodyEdit {
            body,
            copied: 0,
            dropped: 0,
            out: Vec::with_capacity(body.len() + added.sum::<usize>()),
        };
        for place in &self.places {
            match changes.iter().find(|(member, _)| *member == place.member) {
                Some((_, MemberChange::Set(value))) => edit.replace(place, value),
                Some((_, MemberChange::Drop)) => edit.drop(place),
                None => {}
            }
        }
        edit.copy_to(self.end);
        let mut first = edit.dropped == self.count;
        for (member, change) in changes {
            let is_there = self.places.iter().any(|place| place.member == *member);
            if let (MemberChange::Set(value), false) = (change, is_there) {
                edit.out.extend_from_slice(if first { b"\"" } else { b",\"" });
                edit.out.extend_from_slice(member.name().as_bytes());
                edit.out.extend_from_slice(b"\":");
                edit.out.extend_from_slice(value.as_bytes());
                first = false;
            }
        }
        edit.copy_to(body.len());
        edit.out.into()
    }
}

/// A partly copied body.
struct BodyEdit<'a> {
    body: &'a [u8],
    /// Bytes copied so far.
    copied: usize,
    /// Members dropped so far.
    dropped: usize,
    out: Vec<u8>,
}

impl BodyEdit<'_> {
    fn copy_to(&mut self, end: usize) {
        self.out.extend_from_slice(&self.body[self.copied..end]);
        self.copied = end;
    }

    fn replace(&mut self, place: &MemberPosition, value: &str) {
        self.copy_to(place.value.start);
        self.out.extend_from_slice(value.as_bytes());
        self.copied = place.value.end;
    }

    /// Drops a member with the comma before it or, if no member is kept before it, after it.
    fn drop(&mut self, place: &MemberPosition) {
        if place.rank == self.dropped {
            self.copy_to(place.key);
            let rest = self.body[place.value.end..].trim_ascii_start();
            self.copied = match rest.strip_prefix(b",") {
                Some(rest) => self.body.len() - rest.trim_ascii_start().len(),
                None => place.value.end,
            };
        } else {
            let before = self.body[..place.key].trim_ascii_end();
            let before = before.strip_suffix(b",").unwrap_or(before).trim_ascii_end();
            self.copy_to(before.len());
            self.copied = place.value.end;
        }
        self.dropped += 1;
    }
}

/// Finds the members' positions.
struct MemberFinder<'b> {
    body: &'b [u8],
}

impl MemberFinder<'_> {
    fn offset(&self, raw: &RawValue) -> usize {
        raw.get().as_ptr().addr() - self.body.as_ptr().addr()
    }
}

impl<'de> Visitor<'de> for MemberFinder<'de> {
    type Value = BodyMembers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BodyMembers {
            places: Vec::new(),
            count: 0,
            end: self.body.len() - self.body.trim_ascii_start().len() + 1,
        };
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let start = self.offset(value);
            let value = start..start + value.get().len();
            members.end = value.end;
            if let Some(member) = member(key) {
                // One more than allowed shows that there are too many.
                if members.places.len() <= MOST_PLACES {
                    members.places.push(MemberPosition {
                        member,
                        rank: members.count,
                        key: self.offset(key),
                        value,
                    });
                }
            }
            members.count += 1;
        }
        Ok(members)
    }
}

/// Returns the member of a name, decoded if it has escapes.
fn member(key: &RawValue) -> Option<HandshakeMember> {
    let name = key.get().strip_prefix('"')?.strip_suffix('"')?;
    if name.contains('\\') {
        return HandshakeMember::of(&serde_json::from_str::<String>(key.get()).ok()?);
    }
    HandshakeMember::of(name)
}
