//! Event decoder: a tagged array with positional fields, or a map with named fields.
//!
//! Positions (newer versions only append; unknown further fields are ignored): `BlockStored`: hashes, parent, token
//! ids, block size, lora id, medium, lora name, extra keys, group, spec kind, sliding window. `BlockRemoved`: hashes,
//! medium, group. `AllBlocksCleared`: none.

use std::cmp::Ordering;

use rmp::Marker;
use routing::{BlockEvent, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier};

use crate::reject::{EventKind, EventRejection, RejectReason};
use crate::values::{self, ExtraKeys};
use crate::wire::{PayloadCursor, ReadError};

/// Most extra keys per token: a multimodal item's identifier and offset.
const KEYS_A_TOKEN: usize = 2;
/// Most further extra keys per block: its adapter, its salt.
const KEYS_A_BLOCK: usize = 4;

/// Result of reading one event.
#[derive(Debug)]
pub(crate) enum ReadEvent {
    /// An event.
    Whole(BlockEvent),
    /// A store with fewer hashes than its tokens have blocks. The batch's other events define its blocks, see
    /// `sparse.rs`.
    Sparse(StoredBlocks),
}

/// Reads one event. After an error the position of the cursor is undefined: the caller goes back and skips the event.
pub(crate) fn read_event(cursor: &mut PayloadCursor<'_>) -> Result<ReadEvent, EventRejection> {
    let mut fields = EventFields::default();
    let outcome = match cursor.peek() {
        Ok(Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => fields.read_map(cursor),
        _ => fields.read_array(cursor),
    };
    outcome
        .and_then(|()| fields.build())
        .map_err(|reason| (fields.kind, reason))
}

/// Fields read so far.
#[derive(Debug)]
struct EventFields<'a> {
    kind: EventKind,
    tagged: bool,
    store_pool: bool,
    /// The first error in a map's fields. The map is read to its end, because the type may come last.
    fault: Option<RejectReason>,
    hashes: Option<Vec<EngineBlockHash>>,
    parent: Option<EngineBlockHash>,
    tokens: Option<Vec<u32>>,
    block_size: Option<u32>,
    lora_id: Option<i64>,
    lora_name: Option<&'a str>,
    medium: Option<Tier>,
    extra_keys: Option<ExtraKeys<'a>>,
    cache_salt: Option<&'a str>,
    group: u32,
    spec_kind: Option<&'a str>,
    sliding_window: Option<u32>,
}

impl Default for EventFields<'_> {
    fn default() -> Self {
        Self {
            kind: EventKind::Unknown,
            tagged: false,
            store_pool: false,
            fault: None,
            hashes: None,
            parent: None,
            tokens: None,
            block_size: None,
            lora_id: None,
            lora_name: None,
            medium: None,
            extra_keys: None,
            cache_salt: None,
            group: 0,
            spec_kind: None,
            sliding_window: None,
        }
    }
}

const STORED_FIELDS: &[&str] = &[
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
];
const REMOVED_FIELDS: &[&str] = &["block_hashes", "medium", "group_idx"];

impl<'a> EventFields<'a> {
    fn read_array(&mut self, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        let count = cursor.array().map_err(|_| RejectReason::NotAnEvent)?;
        if count == 0 {
            return Err(RejectReason::NotAnEvent);
        }
        self.tag(cursor.text().map_err(|_| RejectReason::NotAnEvent)?);
        let names: &[&str] = match self.kind {
            EventKind::Stored => STORED_FIELDS,
            EventKind::Removed => REMOVED_FIELDS,
            EventKind::Cleared => &[],
            EventKind::Unknown => return Err(RejectReason::UnknownType),
        };
        for position in 0..count - 1 {
            match names.get(position) {
                Some(name) => self.field(name, cursor)?,
                None => cursor.skip().map_err(|_| RejectReason::BadField)?,
            }
        }
        Ok(())
    }

    fn read_map(&mut self, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        let malformed = |_: ReadError| RejectReason::NotAnEvent;
        for _ in 0..cursor.map().map_err(malformed)? {
            let name = cursor.key().map_err(malformed)?;
            let start = *cursor;
            let read = match name {
                Some("type") => cursor.text().map(|tag| self.tag(tag)).map_err(malformed),
                name => self.field(name.unwrap_or_default(), cursor),
            };
            if let Err(fault) = read {
                self.fault.get_or_insert(fault);
                *cursor = start;
                cursor.skip().map_err(malformed)?;
            }
        }
        Ok(())
    }

    fn tag(&mut self, tag: &str) {
        self.tagged = true;
        self.kind = match tag {
            "BlockStored" => EventKind::Stored,
            "BlockRemoved" => EventKind::Removed,
            "AllBlocksCleared" => EventKind::Cleared,
            _ => EventKind::Unknown,
        };
    }

    /// Reads the value of one field, or skips that of an unknown one.
    fn field(&mut self, name: &str, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        match name {
            "block_hashes" => self.hashes = Some(values::hashes(cursor)?),
            "parent_block_hash" => self.parent = values::optional_hash(cursor)?,
            "token_ids" => self.tokens = values::tokens(cursor)?,
            "block_size" => {
                self.block_size = values::optional(cursor).map_err(|_| RejectReason::BadBlockSize)?;
            }
            "lora_id" => self.lora_id = values::optional(cursor)?,
            "medium" => self.medium = values::medium(cursor)?,
            "lora_name" => self.read_lora_name(cursor)?,
            "extra_keys" => self.extra_keys = ExtraKeys::check(cursor)?,
            "cache_salt" => self.cache_salt = values::optional_text(cursor)?,
            "group_idx" => self.group = values::optional(cursor)?.unwrap_or(0),
            "kv_cache_spec_kind" => self.spec_kind = values::optional_text(cursor)?,
            "kv_cache_spec_sliding_window" => self.sliding_window = values::optional(cursor)?,
            other => {
                // Only a store's publisher sends these fields (RFC 1527 and Mooncake's own).
                self.store_pool |= matches!(other, "seq_hashes" | "object_key" | "event_type");
                cursor.skip().map_err(|_| RejectReason::BadField)?;
            }
        }
        Ok(())
    }

    /// Reads the name of an adapter. SGLang 0.5.18 and 0.5.19 have a map with the salt in its place, in stores of
    /// salted requests only.
    fn read_lora_name(&mut self, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        let mut metadata = *cursor;
        let Ok(entries) = metadata.map() else {
            self.lora_name = values::optional_text(cursor)?;
            return Ok(());
        };
        let bad_field = |_: ReadError| RejectReason::BadField;
        for _ in 0..entries {
            match metadata.key().map_err(bad_field)? {
                Some("cache_salt") => self.cache_salt = values::optional_text(&mut metadata)?,
                _ => metadata.skip().map_err(bad_field)?,
            }
        }
        *cursor = metadata;
        Ok(())
    }

    fn build(&mut self) -> Result<ReadEvent, RejectReason> {
        if self.store_pool {
            return Err(RejectReason::StorePool);
        }
        if !self.tagged {
            return Err(RejectReason::NotAnEvent);
        }
        match self.kind {
            EventKind::Unknown => return Err(RejectReason::UnknownType),
            EventKind::Cleared => return Ok(ReadEvent::Whole(BlockEvent::Cleared)),
            EventKind::Stored | EventKind::Removed => {}
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let hashes = self.hashes.take().ok_or(RejectReason::MissingField)?;
        if self.kind == EventKind::Removed {
            // A removal without a medium may mean every tier: assuming fewer could keep removed blocks.
            return Ok(ReadEvent::Whole(BlockEvent::Removed(RemovedBlocks {
                hashes,
                tier: self.medium,
                group: self.group,
            })));
        }
        self.stored(hashes)
    }

    fn stored(&mut self, hashes: Vec<EngineBlockHash>) -> Result<ReadEvent, RejectReason> {
        let tokens = self
            .tokens
            .take()
            .filter(|tokens| !tokens.is_empty() || hashes.is_empty());
        let tokens = tokens.ok_or(RejectReason::NoTokens)?;
        let block_size = self.block_size.ok_or(RejectReason::MissingField)?;
        let blocks = whole_blocks(tokens.len(), block_size)?;
        let mut extra_keys = self.keys_of(hashes.len(), tokens.len())?;
        if let (Some(salt), None) = (self.cache_salt, self.parent) {
            // SGLang sends one salt per event. Like vLLM's, it belongs to the chain's first block.
            extra_keys.resize(hashes.len(), Vec::new());
            if let Some(first) = extra_keys.first_mut() {
                first.push(ExtraKey::Text(salt.into()));
            }
        }
        let count = hashes.len();
        let stored = StoredBlocks {
            hashes,
            parent: self.parent,
            tokens,
            block_size,
            tier: self.medium.unwrap_or(Tier::Device),
            lora: self.lora(),
            extra_keys,
            group: self.group,
            attention: values::attention(self.spec_kind, self.sliding_window),
        };
        match blocks.cmp(&count) {
            Ordering::Equal => Ok(ReadEvent::Whole(BlockEvent::Stored(stored))),
            // A salt belongs to the first block, which is not known yet.
            Ordering::Greater if self.cache_salt.is_none() => Ok(ReadEvent::Sparse(stored)),
            Ordering::Greater => Err(RejectReason::SkippedBlocks),
            Ordering::Less => Err(RejectReason::TokenCount),
        }
    }

    /// Returns the extra keys of `blocks` blocks. Keys beyond the limit are dropped.
    fn keys_of(&self, blocks: usize, tokens: usize) -> Result<Vec<Vec<ExtraKey>>, RejectReason> {
        let Some(keys) = self.extra_keys.filter(|keys| keys.blocks > 0) else {
            return Ok(Vec::new());
        };
        let most = tokens
            .saturating_mul(KEYS_A_TOKEN)
            .saturating_add(KEYS_A_BLOCK * blocks);
        if keys.blocks != blocks || keys.keys > most {
            return Err(RejectReason::BadExtraKeys);
        }
        keys.read()
    }

    /// Returns the adapter. Engines number adapters from 1; Dynamo's mocker sends 0 and old configurations -1 for the
    /// base model.
    fn lora(&self) -> Option<Lora> {
        let name = self.lora_name.filter(|name| !name.is_empty());
        let by_id = || self.lora_id.filter(|&id| id > 0).map(Lora::Id);
        name.map(|name| Lora::Name(name.into())).or_else(by_id)
    }
}

/// Returns the number of blocks that the tokens fill.
fn whole_blocks(tokens: usize, block_size: u32) -> Result<usize, RejectReason> {
    let width = usize::try_from(block_size)
        .ok()
        .filter(|&width| width > 0)
        .ok_or(RejectReason::BadBlockSize)?;
    if tokens.is_multiple_of(width) {
        Ok(tokens / width)
    } else {
        Err(RejectReason::TokenCount)
    }
}
