//! Legs: the role of a request and its transfers, with the differences and failures of each dialect.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::event::{Namespace, block_hash};
use crate::transfer::decode::{Source, gives_up_when_refused, receive};
use crate::transfer::fabric::Key;
use crate::transfer::handshake::{Params, mooncake_source, nixl_source, transfer_id};
use crate::transfer::prefill::{Handover, Plan, PrefillAnswer, keep};
use crate::transfer::side::TransferEndpoint;
use crate::transfer::{Members, PdDialect, PdRole, Settling, Transfer};

/// Seed of the store's own hashes, so that engines with different seeds find each other's blocks.
const STORE_SEED: u64 = 0;

/// A request before it is queued.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) members: &'a Members,
    pub(crate) prompts: &'a [Vec<u32>],
    /// Answers per prompt.
    pub(crate) choices: usize,
    pub(crate) namespace: &'a Namespace,
    /// The prefill side's id of the request; several prompts or choices get a number each.
    pub(crate) id: &'a str,
    /// Requested data-parallel rank.
    pub(crate) rank: u16,
}

/// Transfers of a request.
#[derive(Debug, Default)]
pub(crate) struct Legs {
    /// Transfer of each prompt and choice; missing ones need none.
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) settling: Settling,
    /// Set if this leg ends with its first token, regardless of the request.
    pub(crate) one_token: bool,
}

/// Reason why a request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The engine dies of an assertion: it has the other role.
    Dies,
    /// SGLang's engines serve only requests with a room.
    NoRoom,
}

impl TransferEndpoint {
    /// Returns the legs of a request. The caller must queue or drop the transfers.
    pub(crate) fn open(self: &Arc<Self>, opening: &Opening<'_>) -> Result<Legs, Denied> {
        let vllm = |opening: &Opening<'_>| match (opening.members.params(), self.config.role) {
            (Params::None, _) => Ok(Legs::default()),
            (Params::RemoteDecode(params), PdRole::Prefill) => {
                Ok(self.prefill_legs(opening, transfer_id(params)))
            }
            (Params::RemotePrefill(_), PdRole::Decode) => Ok(self.decode_leg(opening)),
            (Params::RemoteDecode(_), PdRole::Decode) | (Params::RemotePrefill(_), PdRole::Prefill) => {
                self.role_violations.fetch_add(1, Ordering::Relaxed);
                Err(Denied::Dies)
            }
        };
        match self.config.dialect {
            PdDialect::Nixl | PdDialect::Mooncake => vllm(opening),
            PdDialect::Store => Ok(self.store_legs(opening)),
            PdDialect::Sglang => self.rooms(opening).ok_or(Denied::NoRoom),
        }
    }

    /// Notifies the other side that a request is refused, if the dialect does so.
    pub(crate) fn refuse(&self, members: &Members) {
        if let Params::RemotePrefill(_) = members.params()
            && gives_up_when_refused(self.config.dialect)
        {
            self.source(members).give_up(self);
        }
    }

    fn source(&self, members: &Members) -> Source {
        let Params::RemotePrefill(params) = members.params() else {
            return Source::Nowhere;
        };
        let source = match self.config.dialect {
            PdDialect::Mooncake => mooncake_source(params).map(Source::Mooncake),
            _ => nixl_source(params).map(Source::Nixl),
        };
        source.unwrap_or(Source::Nowhere)
    }

    fn prefill_legs(self: &Arc<Self>, opening: &Opening<'_>, transfer_id: Option<String>) -> Legs {
        self.prefill_legs.fetch_add(1, Ordering::Relaxed);
        let mooncake = self.config.dialect == PdDialect::Mooncake;
        let mut legs = Legs::default();
        for child in 0..opening.prompts.len() * opening.choices {
            let tokens = opening.prompts[child / opening.choices].len();
            let (keep_for, answer) = if mooncake {
                (self.config.abort_timeout, PrefillAnswer::Nothing)
            } else {
                (
                    self.config.lease,
                    PrefillAnswer::Where {
                        tokens,
                        port: self.port,
                    },
                )
            };
            let request = match &transfer_id {
                // One id cannot name two: of several choices only the first is handed over.
                Some(id) if mooncake && child == 0 => id.clone(),
                _ => format!("{}-{child}-{:08x}", opening.id, self.new_id()),
            };
            let plan = if mooncake && opening.prompts.len() > 1 {
                Plan::Strand
            } else {
                // With several choices the decode side waits for those that it never fetches.
                let unavailable_for = if opening.choices > 1 {
                    self.config.lease
                } else {
                    Duration::ZERO
                };
                Plan::Offer(Handover {
                    key: Key {
                        engine: self.engine_id(opening.rank),
                        request,
                    },
                    keep_for: self.real(if opening.choices > 1 {
                        self.config.lease
                    } else {
                        keep_for
                    }),
                    unavailable_for: self.real(unavailable_for),
                    answer,
                })
            };
            let (transfer, settled) = keep(self, plan, !mooncake);
            legs.transfers.push(transfer);
            legs.settling.add(settled, answer);
        }
        legs
    }

    /// One handshake is for one sequence: further ones compute their prompt themselves.
    fn decode_leg(self: &Arc<Self>, opening: &Opening<'_>) -> Legs {
        self.decode_legs.fetch_add(1, Ordering::Relaxed);
        let source = match self.config.dialect {
            PdDialect::Mooncake if opening.prompts.len() > 1 => Source::Refused,
            _ => self.source(opening.members),
        };
        Legs {
            transfers: vec![receive(self, source, opening.prompts[0].len())],
            ..Legs::default()
        }
    }

    fn store_legs(self: &Arc<Self>, opening: &Opening<'_>) -> Legs {
        let mut legs = Legs::default();
        self.count_leg();
        for child in 0..opening.prompts.len() * opening.choices {
            let prompt = &opening.prompts[child / opening.choices];
            let hashes = self.store_hashes(prompt, opening.namespace);
            legs.transfers.push(match self.config.role {
                PdRole::Prefill => keep(self, Plan::Store { hashes }, true).0,
                PdRole::Decode => {
                    // The last token is always computed, so its block is not needed.
                    let most = &hashes[..prompt.len().saturating_sub(1) / self.block_size];
                    let found = self.fabric().stored(most) * self.block_size;
                    receive(self, Source::Store, found)
                }
            });
        }
        legs
    }

    fn rooms(self: &Arc<Self>, opening: &Opening<'_>) -> Option<Legs> {
        let rooms = opening.members.rooms(opening.prompts.len(), opening.choices)?;
        self.count_leg();
        let mut legs = Legs {
            one_token: self.config.role == PdRole::Prefill,
            ..Legs::default()
        };
        for (child, room) in rooms.into_iter().enumerate() {
            if self.config.role == PdRole::Decode {
                let tokens = opening.prompts[child / opening.choices].len();
                legs.transfers.push(receive(self, Source::Room(room), tokens));
                continue;
            }
            let answer = PrefillAnswer::NothingUntilFetched;
            let plan = Plan::Offer(Handover {
                key: Key {
                    engine: self.engine_id(0),
                    request: room.request,
                },
                keep_for: self.real(self.config.abort_timeout),
                unavailable_for: Duration::ZERO,
                answer,
            });
            let (transfer, settled) = keep(self, plan, true);
            legs.transfers.push(transfer);
            legs.settling.add(settled, answer);
        }
        Some(legs)
    }

    fn store_hashes(&self, prompt: &[u32], namespace: &Namespace) -> Vec<u64> {
        let mut parent = None;
        let blocks = prompt.chunks_exact(self.block_size);
        let hash = |tokens: &[u32]| {
            let hash = block_hash(STORE_SEED, parent, tokens, namespace);
            parent = Some(hash);
            hash
        };
        blocks.map(hash).collect()
    }

    fn count_leg(&self) {
        let legs = match self.config.role {
            PdRole::Prefill => &self.prefill_legs,
            PdRole::Decode => &self.decode_legs,
        };
        legs.fetch_add(1, Ordering::Relaxed);
    }
}
