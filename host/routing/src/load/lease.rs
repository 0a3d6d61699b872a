//! Lease of a request: its share of a worker's load, and the costs that are learned from its times.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::WorkerLoad;

/// Minimum number of output tokens for a sample of the time between tokens.
pub(super) const FEW_TOKENS: u64 = 8;
/// Assumed time of a prompt token on a worker whose first tokens were never seen, in milliseconds: about what one GPU
/// of 2024 does to a model of ten billion parameters.
const USUAL_TOKEN_MS: f64 = 0.1;

/// One request's share of a worker's load, until dropped.
#[derive(Debug)]
pub struct LoadLease {
    load: Arc<WorkerLoad>,
    prompt: u32,
    stage: Stage,
    fetchable: Option<FetchableTokens>,
}

/// Prompt tokens that the worker held at the dispatch, and those that the best holder did.
#[derive(Debug, Clone, Copy)]
struct FetchableTokens {
    own: u32,
    best: u32,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// State before the first token.
    Prefilling {
        /// Tokens counted as queued.
        uncached: u32,
        /// Use of its first token for the cost model.
        sample: SampleKind,
    },
    /// State after the first token, with the worker's load at that time, this request included.
    Decoding {
        /// Requests past their first token.
        decoding: u32,
        /// Prompt tokens of all requests.
        resident: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum SampleKind {
    /// Sample of the prefill cost, behind so many tokens of others.
    Prefill {
        ahead: u64,
    },
    /// Sample of the transfer cost.
    Transfer,
    None,
}

impl WorkerLoad {
    /// Books a request of `prompt` tokens of which `uncached` must be computed.
    #[must_use = "dropping the lease gives the booking back"]
    pub fn book(self: &Arc<Self>, prompt: u32, uncached: u32) -> LoadLease {
        let own = self
            .prefill_tokens
            .fetch_add(u64::from(uncached), Ordering::Relaxed);
        let ahead = own.saturating_add(self.others.read().prefill_tokens);
        self.lease(prompt, uncached, SampleKind::Prefill { ahead })
    }

    /// Books a request of `prompt` tokens that were computed elsewhere and are fetched.
    #[must_use = "dropping the lease gives the booking back"]
    pub fn book_fetched(self: &Arc<Self>, prompt: u32) -> LoadLease {
        self.lease(prompt, 0, SampleKind::Transfer)
    }

    /// Books a request of `prompt` tokens that are being computed elsewhere meanwhile: its time to first token is no
    /// sample of this worker.
    #[must_use = "dropping the lease gives the booking back"]
    pub fn book_awaiting(self: &Arc<Self>, prompt: u32) -> LoadLease {
        self.lease(prompt, 0, SampleKind::None)
    }

    fn lease(self: &Arc<Self>, prompt: u32, uncached: u32, sample: SampleKind) -> LoadLease {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(u64::from(prompt), Ordering::Relaxed);
        self.changed();
        LoadLease {
            load: Arc::clone(self),
            prompt,
            stage: Stage::Prefilling { uncached, sample },
            fetchable: None,
        }
    }
}

impl LoadLease {
    /// Returns the load that it is booked on.
    #[must_use]
    pub fn load(&self) -> &WorkerLoad {
        &self.load
    }

    /// Records the first token, `ttft` after the dispatch. Later calls do nothing.
    pub fn first_token(&mut self, ttft: Duration) {
        let Stage::Prefilling { uncached, sample } = self.stage else {
            return;
        };
        self.decode(uncached);
        let load = &self.load;
        load.times.ttft.add(ttft);
        load.times.ttft_p90.add(ttft);
        match sample {
            SampleKind::Prefill { ahead } => {
                let cached = self.prompt.saturating_sub(uncached);
                load.cost.prefilled(uncached, cached, ahead, ttft);
            }
            SampleKind::Transfer => load.cost.transferred(self.prompt, ttft),
            SampleKind::None => {}
        }
        load.changed();
    }

    /// Returns the expected time from dispatch to first token, by the worker's past, or at a usual pace where it has
    /// none. `None` if the worker does not compute the prompt, or has computed it.
    #[must_use]
    pub fn expected_ttft(&self) -> Option<Duration> {
        let Stage::Prefilling {
            uncached,
            sample: SampleKind::Prefill { ahead },
        } = self.stage
        else {
            return None;
        };
        let cached = self.prompt.saturating_sub(uncached);
        let learned = self.load.cost.read().first_token_ms(uncached, cached, ahead);
        let ms = if learned.is_nan() {
            u64::from(uncached).saturating_add(ahead) as f64 * USUAL_TOKEN_MS
        } else {
            learned
        };
        Duration::try_from_secs_f64(ms / 1e3).ok()
    }

    /// Takes the prompt as computed: the first token should have come, but cannot be seen since the answer comes in one
    /// piece. The cost model learns nothing of that.
    pub fn take_for_computed(&mut self) {
        if let Stage::Prefilling { uncached, .. } = self.stage {
            self.decode(uncached);
            self.load.changed();
        }
    }

    fn decode(&mut self, uncached: u32) {
        let load = &self.load;
        load.prefill_tokens
            .fetch_sub(u64::from(uncached), Ordering::Relaxed);
        let others = load.others.read();
        let own = load.decoding.fetch_add(1, Ordering::Relaxed) + 1;
        let resident = load.prompt_tokens.load(Ordering::Relaxed);
        self.stage = Stage::Decoding {
            decoding: own.saturating_add(others.decoding),
            resident: resident.saturating_add(others.prompt_tokens),
        };
        load.decoding_tokens
            .fetch_add(u64::from(self.prompt), Ordering::Relaxed);
    }

    /// Sets the longest match of any worker, known at the dispatch. Only a prompt that is computed here and longer
    /// elsewhere shows whether the engine fetches.
    #[must_use]
    pub fn with_best_match(mut self, best: u32) -> Self {
        if let Stage::Prefilling {
            uncached,
            sample: SampleKind::Prefill { .. },
        } = self.stage
        {
            let own = self.prompt.saturating_sub(uncached);
            self.fetchable = (best > own).then_some(FetchableTokens { own, best });
        }
        self
    }

    /// Records how many tokens of the prompt the engine did not compute. `cached` is called only where that shows
    /// whether the engine fetches.
    pub fn prompt_cached(&mut self, cached: impl FnOnce() -> Option<u64>) {
        if let Some(FetchableTokens { own, best }) = self.fetchable.take()
            && let Some(cached) = cached()
        {
            self.load.cost.prompt_cached(own, best, cached);
            self.load.changed();
        }
    }

    /// Records a complete answer: so many tokens, the last of them `since_first` after the first.
    pub fn decoded(&self, tokens: u64, since_first: Duration) {
        let Stage::Decoding { decoding, resident } = self.stage else {
            return;
        };
        if tokens < FEW_TOKENS {
            return;
        }
        let load = &self.load;
        // The mean of the loads at the first and at the last token.
        let now = load.read();
        let decoding = f64::from(decoding).midpoint(now.decoding.into());
        let resident = (resident as f64).midpoint(now.prompt_tokens as f64);
        let between = since_first.div_f64((tokens - 1) as f64);
        load.times.tbt.add(between);
        load.cost.decoded(decoding, resident, between);
        load.changed();
    }
}

impl Drop for LoadLease {
    fn drop(&mut self) {
        match self.stage {
            Stage::Prefilling { uncached, .. } => {
                self.load
                    .prefill_tokens
                    .fetch_sub(u64::from(uncached), Ordering::Relaxed);
            }
            Stage::Decoding { .. } => {
                self.load.decoding.fetch_sub(1, Ordering::Relaxed);
                self.load
                    .decoding_tokens
                    .fetch_sub(u64::from(self.prompt), Ordering::Relaxed);
            }
        }
        self.load
            .prompt_tokens
            .fetch_sub(u64::from(self.prompt), Ordering::Relaxed);
        self.load.requests.fetch_sub(1, Ordering::Relaxed);
        self.load.changed();
    }
}
