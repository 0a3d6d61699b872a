//! Contents of a feed's caches as bytes.
//!
//! Little endian: version u8; number and fingerprint of the last message, number of the oldest one (u64 each); the
//! caches (count, then rank u16 and the cache). A cache has its block size and its groups (number, attention u8 with
//! the window's tokens, block size), its ambiguous names (count, then u64 each), then its chains. A chain has the
//! parent's hash (a byte for none, or the byte 1 and u64), its hashes (count, then u64 each) and its holds: tier u8,
//! group, start, names (count, then u64 each), further names (count, then place and u64 each). All counts, sizes and
//! places are variable-length.

use kv_index::{
    CacheSnapshot, MOST_CHAIN_BLOCKS, MOST_SNAPSHOT_AMBIGUOUS, MOST_SNAPSHOT_GROUPS, SnapshotChain,
    SnapshotGroup, SnapshotHold,
};
use routing::{Attention, DpRank, Tier};

use super::error::{TransferError, VERSION};
use crate::wire::{WireError, WireReader, put_varint};

/// Most bytes of the contents of one feed: about a million blocks.
pub const MOST_CONTENTS_BYTES: usize = 16 << 20;
/// Most caches of one feed.
pub const MOST_RANKS: usize = 1024;
/// Most further names of the held blocks of a chain.
const MOST_FURTHER: usize = 4096;
/// Most holds of one chain: a tier and a group each, in several spans.
const MOST_HOLDS: usize = 4096;
/// Bytes of a chain, at least.
const LEAST_CHAIN: usize = 3;
/// Least bytes of a hold of a chain.
const LEAST_HOLD: usize = 5;

const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Shared];

/// Caches of a feed, at a position of its publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedContents {
    /// Position.
    pub position: ContentsPosition,
    /// Caches by rank.
    pub caches: Vec<(DpRank, CacheSnapshot)>,
}

/// Position in the messages of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentsPosition {
    /// Number of the last message that the contents include.
    pub sequence: u64,
    /// Fingerprint of its payload.
    pub fingerprint: u64,
    /// Number of the oldest message since which the contents include all.
    pub known_from: u64,
}

impl FeedContents {
    /// Returns the bytes. The last chains are left out where there are more than [`MOST_CONTENTS_BYTES`]. Contents that
    /// lack any blocks begin after the publisher's first message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let caches = &self.caches[..self.caches.len().min(MOST_RANKS)];
        let mut is_whole = caches.len() == self.caches.len();
        bytes.extend([0; 24]);
        put_varint(&mut bytes, caches.len() as u64);
        for (at, (rank, cache)) in caches.iter().enumerate() {
            bytes.extend(rank.0.to_le_bytes());
            // Each cache may use an equal share of the rest.
            let left = MOST_CONTENTS_BYTES.saturating_sub(bytes.len());
            let room = left / (caches.len() - at);
            is_whole &= put_cache(&mut bytes, cache, room) && cache.is_whole;
        }
        let known_from = match is_whole {
            true => self.position.known_from,
            false => self.position.known_from.max(1),
        };
        bytes[1..9].copy_from_slice(&self.position.sequence.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.position.fingerprint.to_le_bytes());
        bytes[17..25].copy_from_slice(&known_from.to_le_bytes());
        bytes
    }

    /// Reads contents.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, TransferError> {
        match bytes.first() {
            Some(&VERSION) => read(&bytes[1..]).map_err(|_| TransferError::Unreadable),
            Some(&other) => Err(TransferError::Version(other)),
            None => Err(TransferError::Unreadable),
        }
    }
}

/// Appends a cache of at most `room` bytes. Returns whether it is whole.
fn put_cache(bytes: &mut Vec<u8>, cache: &CacheSnapshot, room: usize) -> bool {
    put_varint(bytes, u64::from(cache.base));
    put_varint(bytes, cache.groups.len() as u64);
    for group in &cache.groups {
        put_varint(bytes, u64::from(group.index));
        match group.attention {
            Attention::Full => bytes.push(0),
            Attention::Window { tokens } => {
                bytes.push(1);
                put_varint(bytes, u64::from(tokens));
            }
            Attention::State => bytes.push(2),
            Attention::Unknown => bytes.push(3),
        }
        put_varint(bytes, u64::from(group.block_size));
    }
    put_hashes(bytes, &cache.ambiguous);
    let room = room.saturating_sub(8 * cache.ambiguous.len());
    let (mut chains, mut count) = (Vec::new(), 0_u64);
    for chain in &cache.chains {
        let end = chains.len();
        put_chain(&mut chains, chain);
        // The count takes up to ten bytes.
        if chains.len() + 64 > room {
            chains.truncate(end);
            break;
        }
        count += 1;
    }
    put_varint(bytes, count);
    bytes.extend(chains);
    count == cache.chains.len() as u64
}

fn put_chain(bytes: &mut Vec<u8>, chain: &SnapshotChain) {
    bytes.push(chain.parent.is_some().into());
    bytes.extend(chain.parent.into_iter().flat_map(u64::to_le_bytes));
    put_hashes(bytes, &chain.contents);
    put_varint(bytes, chain.holds.len() as u64);
    for hold in &chain.holds {
        let tier = TIERS.iter().position(|&tier| tier == hold.tier);
        bytes.push(tier.unwrap_or_default() as u8);
        put_varint(bytes, u64::from(hold.group));
        put_varint(bytes, u64::from(hold.start));
        put_hashes(bytes, &hold.names);
        put_varint(bytes, hold.further.len() as u64);
        for &(place, name) in &hold.further {
            put_varint(bytes, u64::from(place));
            bytes.extend(name.to_le_bytes());
        }
    }
}

fn put_hashes(bytes: &mut Vec<u8>, hashes: &[u64]) {
    put_varint(bytes, hashes.len() as u64);
    bytes.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes()));
}

fn read(bytes: &[u8]) -> Result<FeedContents, WireError> {
    let mut reader = WireReader(bytes);
    let position = ContentsPosition {
        sequence: reader.u64()?,
        fingerprint: reader.u64()?,
        known_from: reader.u64()?,
    };
    let count = reader.count(MOST_RANKS, 5)?;
    let mut caches = Vec::with_capacity(count);
    for _ in 0..count {
        let rank = u16::from_le_bytes([reader.u8()?, reader.u8()?]);
        caches.push((DpRank(rank), read_cache(&mut reader)?));
    }
    reader.end()?;
    Ok(FeedContents { position, caches })
}

fn read_cache(reader: &mut WireReader<'_>) -> Result<CacheSnapshot, WireError> {
    let base = read_u32(reader)?;
    let count = reader.count(MOST_SNAPSHOT_GROUPS, 3)?;
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(SnapshotGroup {
            index: read_u32(reader)?,
            attention: match reader.u8()? {
                0 => Attention::Full,
                1 => Attention::Window {
                    tokens: read_u32(reader)?,
                },
                2 => Attention::State,
                _ => Attention::Unknown,
            },
            block_size: read_u32(reader)?,
        });
    }
    let ambiguous = read_hashes(reader, MOST_SNAPSHOT_AMBIGUOUS)?;
    let count = reader.count(MOST_CONTENTS_BYTES, LEAST_CHAIN)?;
    let chains = (0..count).map(|_| read_chain(reader)).collect::<Result<_, _>>()?;
    Ok(CacheSnapshot {
        base,
        groups,
        ambiguous,
        chains,
        is_whole: true,
    })
}

fn read_chain(reader: &mut WireReader<'_>) -> Result<SnapshotChain, WireError> {
    let parent = match reader.u8()? {
        0 => None,
        _ => Some(reader.u64()?),
    };
    let contents = read_hashes(reader, MOST_CHAIN_BLOCKS)?;
    let count = reader.count(MOST_HOLDS, LEAST_HOLD)?;
    let mut holds = Vec::with_capacity(count);
    for _ in 0..count {
        let tier = *TIERS.get(usize::from(reader.u8()?)).ok_or(WireError::Number)?;
        let (group, start) = (read_u32(reader)?, read_u32(reader)?);
        let names = read_hashes(reader, MOST_CHAIN_BLOCKS)?;
        let count = reader.count(MOST_FURTHER, 9)?;
        let mut further = Vec::with_capacity(count);
        for _ in 0..count {
            further.push((read_u32(reader)?, reader.u64()?));
        }
        holds.push(SnapshotHold {
            tier,
            group,
            start,
            names,
            further,
        });
    }
    Ok(SnapshotChain {
        parent,
        contents,
        holds,
    })
}

fn read_hashes(reader: &mut WireReader<'_>, most: usize) -> Result<Vec<u64>, WireError> {
    let count = reader.count(most, 8)?;
    (0..count).map(|_| reader.u64()).collect()
}

fn read_u32(reader: &mut WireReader<'_>) -> Result<u32, WireError> {
    let number = reader.varint(u64::from(u32::MAX))?;
    u32::try_from(number).map_err(|_| WireError::Number)
}
