//! Object event decoder: a map with an object that was added to a store or removed from it (Mooncake RFC 1527).
//!
//! `object_key` identifies the object. There are two kinds of publishers. The released one (Mooncake `main`) sends
//! only the raw key. An earlier one (`dev/conductor`) parsed keys itself and also sends the parts. These are used if
//! the key is missing or of an unknown grammar. Without both, `seq_hashes` are the names of the objects. Fields, kinds
//! and both layouts follow captures (`data/captures/mooncake`).

use std::sync::Arc;

use routing::{EngineBlockHash, ObjectEvent, Shard, StoreObject, Tier};

use crate::hex;
use crate::object_key::{ObjectKeyError, parse_object_key};
use crate::reject::{EventKind, EventRejection, RejectReason};
use crate::values;
use crate::wire::{PayloadCursor, ReadError};

/// Reads one event into its changes: several if it names objects by several hashes. After an error nothing is added,
/// and the position of the cursor is undefined.
pub(crate) fn read_object_event(
    cursor: &mut PayloadCursor<'_>,
    events: &mut Vec<ObjectEvent>,
) -> Result<(), EventRejection> {
    let mut fields = ObjectFields::default();
    let outcome = fields.read(cursor).and_then(|()| fields.build(events));
    outcome.map_err(|reason| (fields.kind(), reason))
}

/// Fields read so far.
#[derive(Debug, Default)]
struct ObjectFields<'a> {
    /// Value of `event_type`.
    kind: Option<EventKind>,
    /// Value of `type`, the field for old consumers.
    legacy_kind: Option<EventKind>,
    /// A field of stores only was present.
    store: bool,
    /// The first error. The map is read to its end, because the type may come last.
    fault: Option<RejectReason>,
    key: Option<&'a str>,
    /// Parts of the key, as parsed by the earlier publisher.
    connector_hash: Option<&'a str>,
    cache_prefix: Option<&'a str>,
    model: Option<&'a str>,
    shard: Shard,
    hashes: Option<Vec<EngineBlockHash>>,
    medium: Option<Tier>,
}

impl<'a> ObjectFields<'a> {
    fn kind(&self) -> EventKind {
        self.kind.or(self.legacy_kind).unwrap_or(EventKind::Unknown)
    }

    fn read(&mut self, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        let malformed = |_: ReadError| RejectReason::NotAnEvent;
        for _ in 0..cursor.map().map_err(malformed)? {
            let name = cursor.key().map_err(malformed)?.unwrap_or_default();
            let start = *cursor;
            self.store |= matches!(name, "event_type" | "object_key" | "seq_hashes");
            if let Err(fault) = self.field(name, cursor) {
                self.fault.get_or_insert(fault);
                *cursor = start;
                cursor.skip().map_err(malformed)?;
            }
        }
        Ok(())
    }

    /// Reads the value of one field, or skips that of an unknown one.
    fn field(&mut self, name: &str, cursor: &mut PayloadCursor<'a>) -> Result<(), RejectReason> {
        let shard = &mut self.shard;
        match name {
            "event_type" => self.kind = values::optional_text(cursor)?.map(kind_of),
            "type" => self.legacy_kind = values::optional_text(cursor)?.map(kind_of),
            "object_key" => self.key = values::optional_text(cursor)?,
            "connector_block_hash" => self.connector_hash = values::optional_text(cursor)?,
            "cache_prefix" => self.cache_prefix = values::optional_text(cursor)?,
            "model_name" => self.model = values::optional_text(cursor)?,
            "seq_hashes" => self.hashes = Some(values::hashes(cursor)?),
            "medium" => self.medium = values::medium(cursor)?,
            "tp_rank" | "head_or_tp_rank" => part(cursor, &mut shard.tensor)?,
            "pcp_rank" => part(cursor, &mut shard.prefill_context)?,
            "dcp_rank" => part(cursor, &mut shard.decode_context)?,
            "pp_rank" => part(cursor, &mut shard.pipeline)?,
            "layer_id" => part(cursor, &mut shard.layer)?,
            // The earlier publisher sends the KV-cache group in decimal, the released one the name of a lifecycle.
            "group_id" => {
                let group = values::optional_text(cursor)?.and_then(|group| group.parse().ok());
                shard.group = group.unwrap_or_default();
            }
            _ => cursor.skip().map_err(|_| RejectReason::BadField)?,
        }
        Ok(())
    }

    fn build(&mut self, events: &mut Vec<ObjectEvent>) -> Result<(), RejectReason> {
        if !self.store {
            let engine = self.legacy_kind.is_some();
            return Err(if engine {
                RejectReason::EngineEvent
            } else {
                RejectReason::NotAnEvent
            });
        }
        if let (Some(kind), Some(legacy)) = (self.kind, self.legacy_kind)
            && kind != legacy
        {
            return Err(RejectReason::BadField);
        }
        match self.kind() {
            EventKind::Unknown => return Err(RejectReason::UnknownType),
            EventKind::Cleared => {
                events.push(ObjectEvent::Cleared);
                return Ok(());
            }
            EventKind::Stored | EventKind::Removed => {}
        }
        // Errors do not matter for an object that is not followed.
        let objects = self.objects();
        let sidecar = matches!(
            objects,
            Err(RejectReason::SidecarObject | RejectReason::UnknownObjectKey)
        );
        if let Some(fault) = self.fault.filter(|_| !sidecar) {
            return Err(fault);
        }
        let objects = objects?;
        let tier = match self.medium {
            Some(Tier::Host | Tier::Disk) => self.medium,
            None if self.kind() == EventKind::Removed => None,
            _ => return Err(RejectReason::UnknownMedium),
        };
        events.extend(objects.into_iter().map(|object| match (self.kind(), tier) {
            (EventKind::Stored, Some(tier)) => ObjectEvent::Stored { object, tier },
            (_, tier) => ObjectEvent::Removed { object, tier },
        }));
        Ok(())
    }

    /// Returns the objects of the event.
    fn objects(&mut self) -> Result<Vec<StoreObject>, RejectReason> {
        let parsed = self.key.map(parse_object_key);
        match (parsed, self.connector_hash) {
            (Some(Ok(mut object)), _) => {
                if object.model.is_empty() {
                    object.model = self.model.unwrap_or_default().into();
                }
                Ok(vec![object])
            }
            (None | Some(Err(ObjectKeyError::Unknown)), Some(hash)) => {
                let block = hex::low64(hash.as_bytes()).ok_or(RejectReason::BadObjectKey)?;
                let (block, shard) = (EngineBlockHash(block), self.shard);
                let model = self.model();
                Ok(vec![StoreObject { model, block, shard }])
            }
            (Some(Err(error)), _) => Err(error.into()),
            (None, None) => {
                let hashes = self.hashes.take().filter(|hashes| !hashes.is_empty());
                let hashes = hashes.ok_or(RejectReason::MissingField)?;
                let model = self.model();
                let object = |block| StoreObject {
                    model: Arc::clone(&model),
                    block,
                    shard: Shard::default(),
                };
                Ok(hashes.into_iter().map(object).collect())
            }
        }
    }

    /// Returns the model of the fields, spelled as in a key.
    fn model(&self) -> Arc<str> {
        let model = self.model.unwrap_or_default();
        match self.cache_prefix.filter(|prefix| !prefix.is_empty()) {
            Some(prefix) => format!("{prefix}@{model}").into(),
            None => model.into(),
        }
    }
}

fn kind_of(name: &str) -> EventKind {
    match name {
        "stored" | "BlockStored" => EventKind::Stored,
        "removed" | "BlockRemoved" => EventKind::Removed,
        "cleared" | "AllBlocksCleared" => EventKind::Cleared,
        _ => EventKind::Unknown,
    }
}

fn part(cursor: &mut PayloadCursor<'_>, place: &mut u16) -> Result<(), RejectReason> {
    if let Some(number) = values::optional(cursor)? {
        *place = number;
    }
    Ok(())
}
