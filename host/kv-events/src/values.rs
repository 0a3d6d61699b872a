//! Values of events: hashes, token ids, media, extra keys.
//!
//! This module does not know the fields; see `event.rs`.

use rmp::Marker;
use routing::{Attention, EngineBlockHash, ExtraKey, Tier};

use crate::hex;
use crate::reject::RejectReason;
use crate::wire::{PayloadCursor, ReadError, WireInteger, be};

/// Deepest nesting of extra keys. vLLM nests one level, `(identifier, offset)`.
const EXTRA_KEY_DEPTH: usize = 4;

/// Reads a block hash. vLLM sends u64 or the digest's bytes, SGLang and Mooncake's store i64: negative numbers are the
/// same 64 bits. Digests are reduced to their last 8 bytes, big endian, as vLLM does for its integer form. A
/// hexadecimal digest is decoded first: its last 8 characters would be only 32 bits of a hash.
pub(crate) fn hash(cursor: &mut PayloadCursor<'_>) -> Result<EngineBlockHash, RejectReason> {
    let number = match cursor.peek().map_err(|_| RejectReason::BadHash)? {
        Marker::FixNeg(_) | Marker::I8 | Marker::I16 | Marker::I32 | Marker::I64 => {
            cursor.integer::<i64>().map(i64::cast_unsigned)
        }
        Marker::FixPos(_) | Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => cursor.integer::<u64>(),
        marker => cursor.bytes().and_then(|digest| {
            let text = matches!(
                marker,
                Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32
            );
            let spelt = if text { hex::low64(digest) } else { None };
            let last = || digest.last_chunk::<8>().map(|last| be(last));
            spelt.or_else(last).ok_or(ReadError::Mismatch)
        }),
    };
    number.map(EngineBlockHash).map_err(|_| RejectReason::BadHash)
}

pub(crate) fn optional_hash(cursor: &mut PayloadCursor<'_>) -> Result<Option<EngineBlockHash>, RejectReason> {
    if nil(cursor)? {
        Ok(None)
    } else {
        hash(cursor).map(Some)
    }
}

pub(crate) fn hashes(cursor: &mut PayloadCursor<'_>) -> Result<Vec<EngineBlockHash>, RejectReason> {
    let count = cursor.array().map_err(|_| RejectReason::BadHash)?;
    (0..count).map(|_| hash(cursor)).collect()
}

/// Reads token ids; `None` if the list is nil.
pub(crate) fn tokens(cursor: &mut PayloadCursor<'_>) -> Result<Option<Vec<u32>>, RejectReason> {
    if nil(cursor)? {
        return Ok(None);
    }
    let count = cursor.array().map_err(|_| RejectReason::BadToken)?;
    let mut tokens = Vec::with_capacity(count);
    for _ in 0..count {
        let start = *cursor;
        match cursor.unsigned() {
            Ok(token) => tokens.push(token),
            Err(_) => {
                let pair = matches!(
                    start.peek(),
                    Ok(Marker::FixArray(_) | Marker::Array16 | Marker::Array32)
                );
                return Err(if pair {
                    RejectReason::BigramTokens
                } else {
                    RejectReason::BadToken
                });
            }
        }
    }
    Ok(Some(tokens))
}

/// Reads the tier of blocks, if the engine sends it. Dynamo's mocker sends a number at this position of a removal
/// (`data/captures/mocker`), which is not a medium.
pub(crate) fn medium(cursor: &mut PayloadCursor<'_>) -> Result<Option<Tier>, RejectReason> {
    const NAMES: &[(&str, Tier)] = &[
        ("gpu", Tier::Device),
        ("cpu", Tier::Host),
        ("cpu_pinned", Tier::Host),
        ("disk", Tier::Disk),
        ("storage", Tier::Shared),
        ("external", Tier::Shared),
    ];
    let start = *cursor;
    if cursor.integer::<i64>().is_ok() {
        return Ok(None);
    }
    *cursor = start;
    let Some(name) = optional_text(cursor)? else {
        return Ok(None);
    };
    let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known
        .map(|&(_, tier)| Some(tier))
        .ok_or(RejectReason::UnknownMedium)
}

/// Extra keys of an event, validated but not copied: one list per block, nil for a block without keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtraKeys<'a> {
    /// Cursor at the first list.
    lists: PayloadCursor<'a>,
    /// Number of lists.
    pub(crate) blocks: usize,
    /// Number of keys in all lists.
    pub(crate) keys: usize,
}

impl<'a> ExtraKeys<'a> {
    /// Validates and counts the lists; `None` for nil.
    pub(crate) fn check(cursor: &mut PayloadCursor<'a>) -> Result<Option<Self>, RejectReason> {
        if nil(cursor)? {
            return Ok(None);
        }
        let blocks = cursor.array().map_err(|_| RejectReason::BadExtraKeys)?;
        let lists = *cursor;
        let mut keys = 0;
        for _ in 0..blocks {
            if !nil(cursor)? {
                block_keys(cursor, EXTRA_KEY_DEPTH, &mut |_| keys += 1)?;
            }
        }
        Ok(Some(Self { lists, blocks, keys }))
    }

    /// Reads the lists and flattens nested ones. Returns an empty list if no block has a key.
    pub(crate) fn read(mut self) -> Result<Vec<Vec<ExtraKey>>, RejectReason> {
        if self.keys == 0 {
            return Ok(Vec::new());
        }
        let mut blocks = Vec::with_capacity(self.blocks);
        for _ in 0..self.blocks {
            let mut keys = Vec::new();
            if !nil(&mut self.lists)? {
                block_keys(&mut self.lists, EXTRA_KEY_DEPTH, &mut |key| keys.push(key.keep()))?;
            }
            blocks.push(keys);
        }
        Ok(blocks)
    }
}

/// A key, borrowed from the payload.
enum KeyRef<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Int(i64),
}

impl KeyRef<'_> {
    fn keep(self) -> ExtraKey {
        match self {
            Self::Text(text) => ExtraKey::Text(text.into()),
            Self::Bytes(bytes) => ExtraKey::Bytes(bytes.into()),
            Self::Int(number) => ExtraKey::Int(number),
        }
    }
}

fn block_keys<'a>(
    cursor: &mut PayloadCursor<'a>,
    depth: usize,
    found: &mut dyn FnMut(KeyRef<'a>),
) -> Result<(), RejectReason> {
    let bad = |_| RejectReason::BadExtraKeys;
    match cursor.peek().map_err(bad)? {
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            let deeper = depth.checked_sub(1).ok_or(RejectReason::BadExtraKeys)?;
            for _ in 0..cursor.array().map_err(bad)? {
                block_keys(cursor, deeper, found)?;
            }
        }
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => found(KeyRef::Bytes(cursor.bytes().map_err(bad)?)),
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            found(KeyRef::Text(cursor.text().map_err(bad)?));
        }
        _ => found(KeyRef::Int(cursor.integer::<i64>().map_err(bad)?)),
    }
    Ok(())
}

/// Returns the requirement of a KV-cache group's layers by vLLM's `kv_cache_spec_kind` and
/// `kv_cache_spec_sliding_window` (0.32: `v1/kv_cache_interface.py`). [`Attention::Unknown`] covers a window of
/// unknown width (chunked local attention never sends its chunk size), encoder-only and cross attention (their blocks
/// are not prefixes of tokens), a mixture that vLLM calls `unknown`, and unknown kinds.
pub(crate) fn attention(kind: Option<&str>, window: Option<u32>) -> Attention {
    match (kind, window.filter(|&tokens| tokens > 0)) {
        (Some("full_attention" | "mla_attention" | "sink_full_attention"), _) | (None, None) => {
            Attention::Full
        }
        (None | Some("sliding_window" | "sliding_window_mla" | "chunked_local_attention"), Some(tokens)) => {
            Attention::Window { tokens }
        }
        (Some("mamba"), _) => Attention::State,
        _ => Attention::Unknown,
    }
}

pub(crate) fn optional_text<'a>(cursor: &mut PayloadCursor<'a>) -> Result<Option<&'a str>, RejectReason> {
    if nil(cursor)? {
        Ok(None)
    } else {
        cursor.text().map(Some).map_err(|_| RejectReason::BadField)
    }
}

pub(crate) fn optional<T: WireInteger>(cursor: &mut PayloadCursor<'_>) -> Result<Option<T>, RejectReason> {
    if nil(cursor)? {
        Ok(None)
    } else {
        cursor.integer().map(Some).map_err(|_| RejectReason::BadField)
    }
}

fn nil(cursor: &mut PayloadCursor<'_>) -> Result<bool, RejectReason> {
    cursor.take_nil().map_err(|_| RejectReason::BadField)
}
