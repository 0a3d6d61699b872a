//! Responses that the engine keeps, as vLLM does with `VLLM_ENABLE_RESPONSES_API_STORE`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use crate::serving::ask::read;
use crate::serving::refusal::Refusal;

/// Most that are kept.
const MOST: usize = 256;

/// The last responses, by id.
#[derive(Debug, Default)]
pub(crate) struct KeptResponses(Mutex<VecDeque<(String, Value)>>);

#[derive(Debug, Deserialize)]
struct Continued {
    previous_response_id: Option<String>,
}

impl KeptResponses {
    pub(crate) fn keep(&self, id: &str, response: Value) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(other, _)| other != id);
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((id.to_owned(), response));
    }

    pub(crate) fn find(&self, id: &str) -> Result<Value, Refusal> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(other, _)| other == id);
        found
            .map(|(_, response)| response.clone())
            .ok_or_else(|| Refusal::unknown_response(id))
    }

    /// Whether the response that a request goes on from is here.
    pub(crate) fn check_previous(&self, body: &[u8]) -> Result<(), Refusal> {
        let body: Continued = read(body)?;
        body.previous_response_id
            .map_or(Ok(()), |id| self.find(&id).map(drop))
    }
}
