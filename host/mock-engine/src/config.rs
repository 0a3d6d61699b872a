//! Configuration of a mock engine, and its validation.

use thiserror::Error;

use crate::cost::CostModel;
use crate::transfer::PdConfig;

/// Encoding of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventForm {
    /// Msgpack maps, as vLLM sends since 0.26 (and SGLang 0.5.23).
    Map,
    /// Msgpack arrays with `lora_name`, `extra_keys` and `group_idx` at the end, as vLLM 0.20 to 0.23 sent.
    Array,
}

/// Encoding of block hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashForm {
    /// An unsigned 64-bit integer, vLLM's default.
    Int,
    /// 32 bytes whose last eight, big endian, are the integer form
    /// (`VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`).
    Bytes,
}

/// Frames of a replayed batch for a DEALER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayForm {
    /// `["", seq, payload]`, ended by `["", -1, ""]`: vLLM up to 0.23.
    ThreeFrames,
    /// `["", topic, seq, payload]`, ended by `["", "", -1, ""]`: vLLM since 0.26.
    FourFrames,
}

/// Configuration of one mock engine.
#[derive(Debug, Clone, PartialEq)]
pub struct MockConfig {
    /// The model it serves.
    pub model: String,
    /// LoRA adapters at start, requested as models; the first has `lora_id` 1. Others can be loaded at run time.
    pub loras: Vec<String>,
    /// HTTP port on 127.0.0.1; 0 for any free port, as for the next two.
    pub port: u16,
    /// Port of the PUB socket.
    pub kv_events_port: u16,
    /// Port of the ROUTER socket.
    pub kv_replay_port: u16,
    /// Tokens per block.
    pub block_size: u32,
    /// Usable blocks in the cache (vLLM reserves one of its `num_gpu_blocks`).
    pub cache_blocks: u32,
    /// Longest prompt plus answer in tokens; `None` for the cache's capacity.
    pub max_model_len: Option<u32>,
    /// Cost model of steps.
    pub cost: CostModel,
    /// Most decoding sequences; more are queued.
    pub max_running: usize,
    /// Most queued requests; more are refused with 503.
    pub max_waiting: usize,
    /// Most prompt tokens per step, so that decoding continues during a long prefill; `None` computes a prompt in one
    /// step. Prompts are always computed one at a time, first come first served.
    pub chunk_tokens: Option<u32>,
    /// Engine milliseconds per real millisecond: 10 runs ten times as fast as the cost model.
    pub time_scale: f64,
    /// Seed of answers: equal seed and prompt give equal answers on any engine.
    pub seed: u64,
    /// Seed of block hashes: engines with different seeds announce the same block under different hashes.
    pub hash_seed: u64,
    /// Tokens of an answer without `max_tokens`.
    pub answer_tokens: u32,
    /// Publishes cache events. The sockets exist in either case.
    pub publish_events: bool,
    /// Encoding of events.
    pub event_form: EventForm,
    /// Encoding of hashes.
    pub hash_form: HashForm,
    /// Frames of replays.
    pub replay_form: ReplayForm,
    /// Batches kept for replay; the oldest are dropped first.
    pub replay_batches: usize,
    /// First frame of every message.
    pub topic: String,
    /// Data-parallel rank in every batch.
    pub dp_rank: u16,
    /// Number of data-parallel ranks that `X-data-parallel-rank` may name, from 0; others are refused with 400. They
    /// share one scheduler and one cache, but have separate identities for disaggregation.
    pub dp_ranks: u16,
    /// Requests kept for [`MockEngine::requests`](crate::MockEngine::requests), per inference path.
    pub recorded_requests: usize,
    /// Role in prefill/decode disaggregation; `None` for whole requests only.
    pub pd: Option<PdConfig>,
}

impl Default for MockConfig {
    /// vLLM 0.32's wire forms, 65,536 tokens of cache, real time.
    fn default() -> Self {
        Self {
            model: "mock".to_owned(),
            loras: Vec::new(),
            port: 0,
            kv_events_port: 0,
            kv_replay_port: 0,
            block_size: 16,
            cache_blocks: 4096,
            max_model_len: None,
            cost: CostModel::default(),
            max_running: 64,
            max_waiting: 4096,
            chunk_tokens: None,
            time_scale: 1.0,
            seed: 0,
            hash_seed: 0,
            answer_tokens: 64,
            publish_events: true,
            event_form: EventForm::Map,
            hash_form: HashForm::Int,
            replay_form: ReplayForm::FourFrames,
            replay_batches: 10_000,
            topic: "kv-events".to_owned(),
            dp_rank: 0,
            dp_ranks: 1,
            recorded_requests: 32,
            pd: None,
        }
    }
}

/// Reason why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidConfig {
    /// A size or limit of zero.
    #[error("use 0 as `{field}`")]
    Zero {
        /// The field's name.
        field: &'static str,
    },
    /// An invalid time scale.
    #[error("run at time scale {time_scale}: it must be above 0 and finite")]
    TimeScale {
        /// The value.
        time_scale: f64,
    },
    /// Negative or not finite.
    #[error("use the cost model: its figures must be finite and not negative")]
    Cost,
    /// Negative or not finite.
    #[error("take {ms} ms to move the KV cache of 1000 tokens: it must be finite and not negative")]
    TransferTime {
        /// The value.
        ms: f64,
    },
    /// One sequence must always fit, or it would wait forever.
    #[error("hold {max_model_len} tokens of context in a cache of {capacity}")]
    ContextTooLong {
        /// The value.
        max_model_len: u32,
        /// Capacity of the cache in tokens.
        capacity: u64,
    },
}

impl MockConfig {
    /// Returns the longest prompt plus answer in tokens.
    #[must_use]
    pub fn context_limit(&self) -> u32 {
        self.max_model_len
            .unwrap_or_else(|| u32::try_from(self.capacity()).unwrap_or(u32::MAX))
    }

    fn capacity(&self) -> u64 {
        u64::from(self.cache_blocks) * u64::from(self.block_size)
    }

    /// # Errors
    /// [`InvalidConfig`] for what could never serve a request.
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let sizes = [
            ("block_size", self.block_size as usize),
            ("cache_blocks", self.cache_blocks as usize),
            ("max_running", self.max_running),
            ("max_waiting", self.max_waiting),
            ("answer_tokens", self.answer_tokens as usize),
            ("dp_ranks", self.dp_ranks.into()),
            ("replay_batches", self.replay_batches),
            (
                "chunk_tokens",
                self.chunk_tokens.map_or(1, |tokens| tokens as usize),
            ),
            ("max_model_len", self.context_limit() as usize),
        ];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(InvalidConfig::Zero { field });
        }
        if !(self.time_scale.is_finite() && self.time_scale > 0.0) {
            return Err(InvalidConfig::TimeScale {
                time_scale: self.time_scale,
            });
        }
        if !self.cost.is_sane() {
            return Err(InvalidConfig::Cost);
        }
        let ms = self.pd.as_ref().map_or(0.0, |pd| pd.transfer_ms_per_1k_tokens);
        if !(ms.is_finite() && ms >= 0.0) {
            return Err(InvalidConfig::TransferTime { ms });
        }
        if u64::from(self.context_limit()) > self.capacity() {
            return Err(InvalidConfig::ContextTooLong {
                max_model_len: self.context_limit(),
                capacity: self.capacity(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: MockConfig, expected: Result<(), &str>) {
        let found = config.check().map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn a_configuration_that_could_never_serve_is_refused() {
        let default = MockConfig::default;
        check(default(), Ok(()));
        check(
            MockConfig {
                block_size: 0,
                ..default()
            },
            Err("use 0 as `block_size`"),
        );
        check(
            MockConfig {
                time_scale: 0.0,
                ..default()
            },
            Err("run at time scale 0: it must be above 0 and finite"),
        );
        check(
            MockConfig {
                cache_blocks: 2,
                max_model_len: Some(33),
                ..default()
            },
            Err("hold 33 tokens of context in a cache of 32"),
        );
    }

    #[test]
    fn the_context_is_what_the_cache_holds_unless_configured() {
        let config = MockConfig {
            cache_blocks: 3,
            ..MockConfig::default()
        };
        assert_eq!(config.context_limit(), 48);
    }
}
