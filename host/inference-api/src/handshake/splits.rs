//! Requests that can be split into two legs.

use routing::Dialect;

use crate::endpoint::PromptField;
use crate::fields::Raw;
use crate::peek::{Peek, Prompt};

/// Returns `true` if a request can be split. Other requests go whole to one worker, which is at most slower, never
/// wrong.
///
/// - Embeddings have nothing to decode; Responses keep state in an engine.
/// - Several prompts have no handshake in vLLM's connectors: `NixlConnector` answers with one prompt's parameters,
///   `MooncakeConnector` fails and keeps the blocks (vLLM 0.32, run). A prompt in a form not known here may be several.
/// - Log-probabilities of the prompt (`prompt_logprobs`, and `echo` with `logprobs`) come from the engine that computes
///   it, and the client's answer from the other one.
/// - Beam search drops `kv_transfer_params` on its way to the engine (vLLM 0.32, `to_beam_search_params`).
/// - SGLang's samples of one prompt (`n`) all meet in that prompt's bootstrap room, whatever list of rooms the body
///   has, and wait there until a timeout (SGLang 0.5.23, `_handle_batch_request`; sgl-project/sglang#24223, #30723).
///   Those of `MooncakeConnector` share a transfer id, and all but one may wait for it until theirs (vLLM 0.32, run).
/// - Of Anthropic's Messages API vLLM takes `kv_transfer_params`, but neither `ignore_eos` nor a bootstrap room: what
///   `MooncakeConnector` and SGLang need. A budget of thinking above the one token of a prefill leg is refused where
///   the leg has no `kv_transfer_params`, as in a pool with a store.
#[must_use]
pub fn splits(peek: &Peek<'_>, dialect: Dialect) -> bool {
    let fields = &peek.fields;
    let takes_batches = matches!(dialect, Dialect::Store | Dialect::Sglang);
    let prompt_fits = takes_batches
        || fields.prompt_embeds.is_none()
            && !matches!(peek.prompt.single(), Prompt::Batch(_) | Prompt::Other);
    let has_legs = peek.endpoint.spec().splits;
    let needs_prompt_output = fields.prompt_logprobs.is_some() || is_set(fields.echo);
    let shares_a_room = dialect.is_concurrent() && fields.n.is_some_and(|n| n.get() != "1");
    let takes_handshake = peek.endpoint.spec().prompt != PromptField::AnthropicMessages
        || match dialect {
            Dialect::Nixl => true,
            Dialect::Store => fields.thinking.is_none(),
            Dialect::Mooncake | Dialect::Sglang => false,
        };
    has_legs
        && takes_handshake
        && prompt_fits
        && !needs_prompt_output
        && !is_set(fields.use_beam_search)
        && !shares_a_room
}

/// Any value except `false` counts: engines accept 1 and "true".
fn is_set(flag: Option<Raw<'_>>) -> bool {
    flag.is_some_and(|raw| raw.get() != "false")
}
