//! Transfer of a feed's caches from one router to another that starts: messages, and both sides' state.
//!
//! The starting router requests the parts of one feed's contents, one after another. The other one reads the contents
//! at the first request, keeps them until the last part is sent, and refuses whatever it cannot give.
//!
//! A message is little endian: version u8, kind u8, number of the transfer u64, feed u64. A request goes on with the
//! hashes of fleet and configuration (u64 each), the oldest message that the requesting router has (u64, the highest
//! number for none) and the number of the part (u32). A part goes on with its number and the number of parts (u32
//! each), then its bytes. A refusal goes on with its reason (u8).

mod contents;
mod error;
mod receiver;
mod server;

pub use self::contents::{ContentsPosition, FeedContents, MOST_CONTENTS_BYTES, MOST_RANKS};
pub use self::error::TransferError;
use self::error::VERSION;
pub use self::receiver::{ReceivedPart, TransferReceiver};
pub use self::server::{MOST_TRANSFERS, TransferServer};
use crate::id::{FeedKey, text_key};
use crate::wire::WireReader;

/// Bytes of a part; the last one may have fewer.
pub const PART_BYTES: usize = 128 << 10;
/// Maximum number of parts.
const MOST_PARTS: u32 = MOST_CONTENTS_BYTES.div_ceil(PART_BYTES) as u32;

/// Message of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferMessage {
    /// Request for a part.
    Request(TransferRequest),
    /// A part.
    Part(TransferPart),
    /// Refusal of a request.
    Refusal(TransferId, RefusalReason),
}

/// Identity of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferId {
    /// Number that the requesting router has drawn.
    pub number: u64,
    /// Requested feed.
    pub feed: FeedKey,
}

/// Request for a part of a feed's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferRequest {
    /// Transfer.
    pub id: TransferId,
    /// Fleet and configuration of the requesting router.
    pub hashes: FleetHashes,
    /// Number of the oldest message of the publisher that it has.
    pub known_from: Option<u64>,
    /// Number of the part, from 0.
    pub part: u32,
}

/// A part of a feed's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferPart {
    /// Transfer.
    pub id: TransferId,
    /// Number of the part, from 0.
    pub part: u32,
    /// Number of parts.
    pub parts: u32,
    /// Bytes.
    pub bytes: Vec<u8>,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The routers have different pools, workers or configuration files.
    OtherFleet,
    /// The feed is unknown or not current.
    NotCurrent,
    /// The router has nothing older.
    NothingOlder,
    /// Too many transfers at once.
    Busy,
    /// The transfer is over, or was never begun.
    Over,
}

/// Hashes of a router's pools and workers, and of its configuration file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetHashes {
    fleet: u64,
    config: u64,
}

impl FleetHashes {
    /// Returns the hashes by their texts in hellos.
    #[must_use]
    pub fn of(fleet_hash: &str, config_hash: &str) -> Self {
        Self {
            fleet: text_key(fleet_hash),
            config: text_key(config_hash),
        }
    }
}

impl RefusalReason {
    const ALL: [Self; 5] = [
        Self::OtherFleet,
        Self::NotCurrent,
        Self::NothingOlder,
        Self::Busy,
        Self::Over,
    ];

    /// Returns the name used in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherFleet => "other fleet or configuration",
            Self::NotCurrent => "feed not current",
            Self::NothingOlder => "nothing older",
            Self::Busy => "busy",
            Self::Over => "transfer over",
        }
    }
}

impl TransferMessage {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, id) = match self {
            Self::Request(request) => (0, request.id),
            Self::Part(part) => (1, part.id),
            Self::Refusal(id, _) => (2, *id),
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend(id.number.to_le_bytes());
        bytes.extend(id.feed.0.to_le_bytes());
        match self {
            Self::Request(request) => {
                bytes.extend(request.hashes.fleet.to_le_bytes());
                bytes.extend(request.hashes.config.to_le_bytes());
                bytes.extend(request.known_from.unwrap_or(u64::MAX).to_le_bytes());
                bytes.extend(request.part.to_le_bytes());
            }
            Self::Part(part) => {
                bytes.extend(part.part.to_le_bytes());
                bytes.extend(part.parts.to_le_bytes());
                bytes.extend(&part.bytes);
            }
            Self::Refusal(_, reason) => {
                let place = RefusalReason::ALL.iter().position(|known| known == reason);
                bytes.push(place.unwrap_or_default() as u8);
            }
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, TransferError> {
        match bytes.first() {
            Some(&VERSION) => Self::read(&bytes[1..]).ok_or(TransferError::Unreadable),
            Some(&other) => Err(TransferError::Version(other)),
            None => Err(TransferError::Unreadable),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = WireReader(bytes);
        let kind = reader.u8().ok()?;
        let id = TransferId {
            number: reader.u64().ok()?,
            feed: FeedKey(reader.u64().ok()?),
        };
        let message = match kind {
            0 => Self::Request(TransferRequest {
                id,
                hashes: FleetHashes {
                    fleet: reader.u64().ok()?,
                    config: reader.u64().ok()?,
                },
                known_from: Some(reader.u64().ok()?).filter(|&known| known != u64::MAX),
                part: reader.u32().ok()?,
            }),
            1 => {
                let (part, parts) = (reader.u32().ok()?, reader.u32().ok()?);
                let bytes = std::mem::take(&mut reader.0);
                let fits = part < parts && parts <= MOST_PARTS && bytes.len() <= PART_BYTES;
                fits.then(|| {
                    Self::Part(TransferPart {
                        id,
                        part,
                        parts,
                        bytes: bytes.to_vec(),
                    })
                })?
            }
            2 => Self::Refusal(id, *RefusalReason::ALL.get(usize::from(reader.u8().ok()?))?),
            _ => return None,
        };
        reader.end().ok()?;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TransferId = TransferId {
        number: 7,
        feed: FeedKey(9),
    };

    fn messages() -> Vec<TransferMessage> {
        let refusals = RefusalReason::ALL.map(|reason| TransferMessage::Refusal(ID, reason));
        let request = |known_from| {
            TransferMessage::Request(TransferRequest {
                id: ID,
                hashes: FleetHashes::of("f", "c"),
                known_from,
                part: 3,
            })
        };
        let part = TransferMessage::Part(TransferPart {
            id: ID,
            part: 1,
            parts: 2,
            bytes: vec![1, 2, 3],
        });
        [request(None), request(Some(5)), part]
            .into_iter()
            .chain(refusals)
            .collect()
    }

    #[test]
    fn every_message_is_read_back_and_no_beginning_of_one_is_another() {
        for message in messages() {
            let bytes = message.encode();
            assert_eq!(TransferMessage::decode(&bytes), Ok(message.clone()));
            for end in 0..bytes.len() {
                let part = TransferMessage::decode(&bytes[..end]);
                let is_shorter_part = matches!(part, Ok(TransferMessage::Part(_)));
                assert!(part.is_err() || is_shorter_part, "{message:?} up to {end}");
            }
        }
    }

    #[test]
    fn other_versions_kinds_and_impossible_parts_are_refused() {
        let bytes = messages()[0].encode();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            TransferMessage::decode(&bytes)
        };
        assert_eq!(with(0, 9), Err(TransferError::Version(9)));
        assert_eq!(with(1, 9), Err(TransferError::Unreadable));
        for (part, parts) in [(2, 2), (0, MOST_PARTS + 1)] {
            let part = TransferPart {
                id: ID,
                part,
                parts,
                bytes: Vec::new(),
            };
            let bytes = TransferMessage::Part(part).encode();
            assert_eq!(TransferMessage::decode(&bytes), Err(TransferError::Unreadable));
        }
    }
}
