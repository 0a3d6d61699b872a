//! Event batch encoder in the engines' format: `[ts, [event...], dp_rank]` in msgpack, events as maps (vLLM 0.26 and
//! later) or arrays (vLLM 0.20 to 0.23). Field names and order follow vLLM's `kv_events.py`, checked with recorded
//! frames.

use rmp::encode::{self, ByteBuf};

use crate::config::{EventForm, HashForm, MockConfig};
use crate::event::{CacheEvent, Stored};

const IN_MEMORY: &str = "writing to memory cannot fail";
/// Medium of every block.
const MEDIUM: &str = "GPU";
/// The only KV-cache group.
const GROUP: u64 = 0;

/// Encoding of this engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventWire {
    form: EventForm,
    hashes: HashForm,
    block_size: u32,
    dp_rank: u16,
}

impl EventWire {
    pub(crate) fn new(config: &MockConfig) -> Self {
        Self {
            form: config.event_form,
            hashes: config.hash_form,
            block_size: config.block_size,
            dp_rank: config.dp_rank,
        }
    }

    /// Returns the payload of one batch; `ts` in Unix seconds.
    pub(crate) fn batch(&self, ts: f64, events: &[CacheEvent]) -> Vec<u8> {
        let mut out = Writer::default();
        out.array(3);
        out.float(ts);
        out.array(events.len());
        for event in events {
            match self.form {
                EventForm::Map => self.event_map(&mut out, event),
                EventForm::Array => self.event_array(&mut out, event),
            }
        }
        out.uint(self.dp_rank.into());
        out.0.into_vec()
    }

    fn event_map(&self, out: &mut Writer, event: &CacheEvent) {
        match event {
            CacheEvent::Stored(stored) => self.stored_map(out, stored),
            CacheEvent::Removed(hash) => {
                out.map(4);
                out.entry("type").text("BlockRemoved");
                out.entry("block_hashes").array(1);
                self.hash(out, *hash);
                out.entry("medium").text(MEDIUM);
                out.entry("group_idx").uint(GROUP);
            }
            CacheEvent::Cleared => {
                out.map(1);
                out.entry("type").text("AllBlocksCleared");
            }
        }
    }

    fn stored_map(&self, out: &mut Writer, stored: &Stored) {
        out.map(11);
        out.entry("type").text("BlockStored");
        self.hashes(out.entry("block_hashes"), &stored.hashes);
        self.parent(out.entry("parent_block_hash"), stored.parent);
        out.entry("token_ids").tokens(&stored.tokens);
        out.entry("block_size").uint(self.block_size.into());
        out.entry("lora_id").optional_uint(lora_id(stored));
        out.entry("medium").text(MEDIUM);
        out.entry("lora_name").optional_text(lora_name(stored));
        extra_keys(out.entry("extra_keys"), stored);
        out.entry("group_idx").uint(GROUP);
        out.entry("kv_cache_spec_kind").text("full_attention");
    }

    fn event_array(&self, out: &mut Writer, event: &CacheEvent) {
        match event {
            CacheEvent::Stored(stored) => {
                out.array(10);
                out.text("BlockStored");
                self.hashes(out, &stored.hashes);
                self.parent(out, stored.parent);
                out.tokens(&stored.tokens);
                out.uint(self.block_size.into());
                out.optional_uint(lora_id(stored));
                out.text(MEDIUM);
                out.optional_text(lora_name(stored));
                extra_keys(out, stored);
                out.uint(GROUP);
            }
            CacheEvent::Removed(hash) => {
                out.array(4);
                out.text("BlockRemoved");
                out.array(1);
                self.hash(out, *hash);
                out.text(MEDIUM);
                out.uint(GROUP);
            }
            CacheEvent::Cleared => {
                out.array(1);
                out.text("AllBlocksCleared");
            }
        }
    }

    fn hashes(&self, out: &mut Writer, hashes: &[u64]) {
        out.array(hashes.len());
        for &hash in hashes {
            self.hash(out, hash);
        }
    }

    fn parent(&self, out: &mut Writer, parent: Option<u64>) {
        match parent {
            Some(hash) => self.hash(out, hash),
            None => out.nil(),
        }
    }

    fn hash(&self, out: &mut Writer, hash: u64) {
        match self.hashes {
            HashForm::Int => out.uint(hash),
            HashForm::Bytes => out.bytes(&digest(hash)),
        }
    }
}

/// Returns 32 bytes that end in the integer form and differ whenever it does.
fn digest(hash: u64) -> [u8; 32] {
    let mut digest = [0; 32];
    for (word, chunk) in digest.chunks_exact_mut(8).rev().enumerate() {
        let shifted = hash.rotate_left(u32::try_from(word).expect("four words") * 16);
        chunk.copy_from_slice(&shifted.to_be_bytes());
    }
    digest
}

fn lora_id(stored: &Stored) -> Option<u64> {
    stored.namespace.adapter.as_ref().map(|adapter| adapter.id.into())
}

fn lora_name(stored: &Stored) -> Option<&str> {
    stored.namespace.adapter.as_ref().map(|adapter| &*adapter.name)
}

/// Writes one list per block, nil without extra keys.
fn extra_keys(out: &mut Writer, stored: &Stored) {
    out.array(stored.hashes.len());
    for block in 0..stored.hashes.len() {
        let keys = stored.namespace.extra_keys(block == 0 && stored.parent.is_none());
        if keys.is_empty() {
            out.nil();
            continue;
        }
        out.array(keys.len());
        for key in keys {
            out.text(key);
        }
    }
}

/// Msgpack writer in memory, with every number in its shortest form.
#[derive(Default)]
struct Writer(ByteBuf);

impl Writer {
    fn map(&mut self, entries: u32) {
        encode::write_map_len(&mut self.0, entries).expect(IN_MEMORY);
    }

    fn entry(&mut self, key: &str) -> &mut Self {
        self.text(key);
        self
    }

    fn array(&mut self, length: usize) {
        let length = u32::try_from(length).expect("no array here is longer than a context");
        encode::write_array_len(&mut self.0, length).expect(IN_MEMORY);
    }

    fn tokens(&mut self, tokens: &[u32]) {
        self.array(tokens.len());
        for &token in tokens {
            self.uint(token.into());
        }
    }

    fn uint(&mut self, number: u64) {
        encode::write_uint(&mut self.0, number).expect(IN_MEMORY);
    }

    fn float(&mut self, number: f64) {
        encode::write_f64(&mut self.0, number).expect(IN_MEMORY);
    }

    fn text(&mut self, text: &str) {
        encode::write_str(&mut self.0, text).expect(IN_MEMORY);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        encode::write_bin(&mut self.0, bytes).expect(IN_MEMORY);
    }

    fn nil(&mut self) {
        encode::write_nil(&mut self.0).expect(IN_MEMORY);
    }

    fn optional_uint(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.uint(number),
            None => self.nil(),
        }
    }

    fn optional_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.nil(),
        }
    }
}

#[cfg(test)]
mod tests;
