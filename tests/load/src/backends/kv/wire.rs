//! Batches of events as vLLM writes them since 0.26: `[ts, [event...], dp_rank]` in msgpack, events as maps. Field
//! names after vLLM's `kv_events.py`.

use std::time::{SystemTime, UNIX_EPOCH};

use rmp::encode::{self, ByteBuf};

use super::holding::{BLOCK, Chain};

const IN_MEMORY: &str = "writing to memory cannot fail";

/// Chains that are there from now on, and blocks that are not.
pub(super) fn batch(stored: &[&Chain], removed: &[u64]) -> Vec<u8> {
    let mut out = Writer(ByteBuf::new());
    let ts = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    out.array(3);
    encode::write_f64(&mut out.0, ts).expect(IN_MEMORY);
    out.array(stored.len() + usize::from(!removed.is_empty()));
    if !removed.is_empty() {
        out.map(4);
        out.text("type").text("BlockRemoved");
        out.text("block_hashes").uints(removed.iter().copied());
        out.text("medium").text("GPU");
        out.text("group_idx").uint(0);
    }
    for chain in stored {
        out.map(11);
        out.text("type").text("BlockStored");
        out.text("block_hashes").uints(chain.hashes.iter().copied());
        let parent = out.text("parent_block_hash");
        match chain.parent {
            Some(hash) => parent.uint(hash),
            None => parent.nil(),
        }
        out.text("token_ids")
            .uints(chain.tokens.iter().copied().map(u64::from));
        out.text("block_size").uint(BLOCK as u64);
        out.text("lora_id").nil();
        out.text("medium").text("GPU");
        out.text("lora_name").nil();
        out.text("extra_keys").nil();
        out.text("group_idx").uint(0);
        out.text("kv_cache_spec_kind").text("full_attention");
    }
    out.uint(0);
    out.0.into_vec()
}

struct Writer(ByteBuf);

impl Writer {
    fn map(&mut self, entries: u32) {
        encode::write_map_len(&mut self.0, entries).expect(IN_MEMORY);
    }

    fn array(&mut self, length: usize) {
        let length = u32::try_from(length).expect("no array here is longer than a context");
        encode::write_array_len(&mut self.0, length).expect(IN_MEMORY);
    }

    fn text(&mut self, text: &str) -> &mut Self {
        encode::write_str(&mut self.0, text).expect(IN_MEMORY);
        self
    }

    fn uint(&mut self, number: u64) {
        encode::write_uint(&mut self.0, number).expect(IN_MEMORY);
    }

    fn uints(&mut self, numbers: impl ExactSizeIterator<Item = u64>) {
        self.array(numbers.len());
        numbers.for_each(|number| self.uint(number));
    }

    fn nil(&mut self) {
        encode::write_nil(&mut self.0).expect(IN_MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::super::holding::Holding;
    use kv_events::decode_batch;
    use routing::BlockEvent;

    #[test]
    fn conductor_reads_every_event() {
        let mut holding = Holding::new(0, 4, 4_096);
        let mut blocks = 0;
        for batch in holding.batches() {
            let batch = decode_batch(&batch).unwrap();
            assert_eq!(batch.rejected.samples(), []);
            for event in &batch.events {
                let BlockEvent::Stored(stored) = event else {
                    panic!("{event:?}");
                };
                blocks += stored.hashes.len() as u64;
            }
        }
        assert_eq!(blocks, holding.blocks());
        for _ in 0..20 {
            let batch = decode_batch(&holding.change()).unwrap();
            assert!(batch.rejected.total() == 0 && !batch.events.is_empty());
        }
    }
}
