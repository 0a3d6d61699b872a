//! Object key parser: the keys of engine blocks in a Mooncake store, one grammar per engine.
//!
//! * vLLM (0.32, `mooncake/store/data.py`): `[prefix@]model[namespace]@tp_rank:N@pcpN@dcpN@pp_rank:N[@group:N]@HEX`,
//!   where the prefix may hold `@` and the namespace is segments of its own
//!   (`@store_tp:4@store_pp:1@store_format:...`). `LMDeploy` writes the same without context and pipeline ranks (its
//!   issue 4930 shows some).
//! * vLLM-Ascend (`ascend_store/config_data.py`): `model@pcpN@dcpN@head_or_tp_rank:N@pp_rank:N@HEX`, and one object a
//!   layer as `...@head_or_tp_rank:N@HEX@LAYER`; from 0.20.2 with `@group:N@cache_role:R@cache_family:F` before the
//!   hash, and the layer before it too, as `@layer_id:N`.
//! * SGLang `HiCache` (`mooncake_store.py`): `[prefix_]HEX_RANK_k|v`, `[prefix_]HEX_RANK_PP_k|v` with pipeline ranks,
//!   and for MLA, whose ranks share one object, `HEX__k`, `HEX_PP_k` or (earlier) `HEX_k`. A lone number is taken for
//!   the tensor rank: an MLA model's pipeline rank looks the same. From 0.5.17 the prefix holds the model, `/` as `-`.
//! * A 64-bit number in decimal or `0x` hexadecimal, which is the block's hash itself (RFC 1527).
//!
//! The block is named by the engine hash of its events: vLLM announces the last 8 bytes of a digest, SGLang
//! the first 8 (`hash_str_to_int64` in its `mem_cache/utils.py`).

use routing::{EngineBlockHash, Shard, StoreObject};

use crate::hex;
use crate::reject::RejectReason;

/// Reason why a key is not a block's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectKeyError {
    /// No known grammar.
    #[error("object key follows no known grammar")]
    Unknown,
    /// A hash of less than 64 bits, or a rank that is repeated or above 65535.
    #[error("object key has a hash or a rank that cannot be one")]
    Bad,
    /// An object beside a block's keys and values: a draft model's, an indexer's, a state.
    #[error("object is no part of a block's keys and values")]
    Sidecar,
}

impl From<ObjectKeyError> for RejectReason {
    fn from(error: ObjectKeyError) -> Self {
        match error {
            ObjectKeyError::Unknown => Self::UnknownObjectKey,
            ObjectKeyError::Bad => Self::BadObjectKey,
            ObjectKeyError::Sidecar => Self::SidecarObject,
        }
    }
}

/// Parses the key of an object, as in a store's events and in its `GET /get_all_keys`.
///
/// # Errors
/// Returns [`ObjectKeyError`] if the key is not a block's object.
pub fn parse_object_key(key: &str) -> Result<StoreObject, ObjectKeyError> {
    if let Some(block) = number(key) {
        return Ok(StoreObject {
            model: "".into(),
            block: EngineBlockHash(block),
            shard: Shard::default(),
        });
    }
    if key.contains('@') { vllm(key) } else { sglang(key) }
}

/// Parses a plain number of 64 bits.
fn number(key: &str) -> Option<u64> {
    match key.strip_prefix("0x").or_else(|| key.strip_prefix("0X")) {
        Some(digits) if hex::is_hex(digits.as_bytes()) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => decimal(key)?.parse().ok(),
    }
}

/// Returns the text if it has only digits: `parse` alone would accept a sign.
fn decimal(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

fn vllm(key: &str) -> Result<StoreObject, ObjectKeyError> {
    let (mut head, mut last) = key.rsplit_once('@').ok_or(ObjectKeyError::Unknown)?;
    let mut labels = KeyLabels::default();
    // A layer after the hash is the only number that short at this position.
    if decimal(last).is_some_and(|layer| layer.len() < 16)
        && let Some((front, before)) = head.rsplit_once('@')
        && KeyLabel::of(before).is_none()
    {
        labels.set(KeyField::Layer, last)?;
        (head, last) = (front, before);
    }
    while let Some((front, segment)) = head.rsplit_once('@')
        && let Some(KeyLabel { field, value }) = KeyLabel::of(segment)
    {
        labels.set(field, value)?;
        head = front;
    }
    if !labels.ranked {
        return Err(ObjectKeyError::Unknown);
    }
    if labels.other_role {
        return Err(ObjectKeyError::Sidecar);
    }
    let block = hex::low64(last.as_bytes()).filter(|_| !head.is_empty());
    Ok(StoreObject {
        model: head.into(),
        block: EngineBlockHash(block.ok_or(ObjectKeyError::Bad)?),
        shard: labels.shard,
    })
}

/// Meaning of a labelled segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyField {
    Tensor,
    Pipeline,
    PrefillContext,
    DecodeContext,
    Group,
    Layer,
    Role,
    Family,
}

/// A segment between the model and the hash.
struct KeyLabel<'a> {
    field: KeyField,
    value: &'a str,
}

impl<'a> KeyLabel<'a> {
    fn of(segment: &'a str) -> Option<Self> {
        const NAMES: &[(&str, KeyField)] = &[
            ("tp_rank:", KeyField::Tensor),
            ("head_or_tp_rank:", KeyField::Tensor),
            ("pp_rank:", KeyField::Pipeline),
            ("group:", KeyField::Group),
            ("layer_id:", KeyField::Layer),
            ("cache_role:", KeyField::Role),
            // The group implies it, so it distinguishes no objects.
            ("cache_family:", KeyField::Family),
        ];
        let named = NAMES
            .iter()
            .find_map(|&(name, field)| segment.strip_prefix(name).map(|value| Self { field, value }));
        let context = |name, field| {
            let value = segment.strip_prefix(name)?;
            let value = value.strip_prefix(':').unwrap_or(value);
            decimal(value).map(|value| Self { field, value })
        };
        named
            .or_else(|| context("pcp", KeyField::PrefillContext))
            .or_else(|| context("dcp", KeyField::DecodeContext))
    }
}

/// Labels of one key.
#[derive(Debug, Default)]
struct KeyLabels {
    shard: Shard,
    /// Fields seen, one bit each.
    seen: u8,
    ranked: bool,
    other_role: bool,
}

impl KeyLabels {
    fn set(&mut self, field: KeyField, value: &str) -> Result<(), ObjectKeyError> {
        let bit = 1 << field as u8;
        if self.seen & bit != 0 {
            return Err(ObjectKeyError::Bad);
        }
        self.seen |= bit;
        let place = match field {
            KeyField::Tensor => {
                self.ranked = true;
                &mut self.shard.tensor
            }
            KeyField::Pipeline => &mut self.shard.pipeline,
            KeyField::PrefillContext => &mut self.shard.prefill_context,
            KeyField::DecodeContext => &mut self.shard.decode_context,
            KeyField::Group => &mut self.shard.group,
            KeyField::Layer => &mut self.shard.layer,
            KeyField::Role => {
                self.other_role = value != "kv";
                return Ok(());
            }
            KeyField::Family => return Ok(()),
        };
        *place = rank(value)?;
        Ok(())
    }
}

fn rank(value: &str) -> Result<u16, ObjectKeyError> {
    decimal(value)
        .and_then(|digits| digits.parse().ok())
        .ok_or(ObjectKeyError::Bad)
}

fn sglang(key: &str) -> Result<StoreObject, ObjectKeyError> {
    const DIGEST: usize = 64;
    let digest = |segment: &str| segment.len() == DIGEST && hex::is_hex(segment.as_bytes());
    let segments: Vec<&str> = key.split('_').collect();
    let place = segments
        .iter()
        .rposition(|segment| digest(segment))
        .ok_or(ObjectKeyError::Unknown)?;
    let (prefix, rest) = segments.split_at(place);
    let [hash, suffix @ ..] = rest else {
        return Err(ObjectKeyError::Unknown);
    };
    let ((tensor, pipeline), part) = match suffix {
        [] => return Err(ObjectKeyError::Unknown),
        ["k"] | ["", "k"] => ((0, 0), "k"),
        [tensor, part @ ("k" | "v")] if decimal(tensor).is_some() => ((rank(tensor)?, 0), *part),
        [tensor, pipeline, part @ ("k" | "v")]
            if decimal(tensor).is_some() && decimal(pipeline).is_some() =>
        {
            ((rank(tensor)?, rank(pipeline)?), *part)
        }
        _ => return Err(ObjectKeyError::Sidecar),
    };
    Ok(StoreObject {
        model: prefix.join("_").into(),
        block: EngineBlockHash(hex::high64(hash.as_bytes()).ok_or(ObjectKeyError::Bad)?),
        shard: Shard {
            tensor,
            pipeline,
            part: u8::from(part == "v"),
            ..Shard::default()
        },
    })
}
