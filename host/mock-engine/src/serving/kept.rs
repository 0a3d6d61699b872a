//! Stored responses, as in vLLM with `VLLM_ENABLE_RESPONSES_API_STORE`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::serving::reading::read;
use crate::serving::refusal::Refusal;

/// Most stored responses.
const MOST: usize = 256;

/// The last responses, by id.
#[derive(Debug, Default)]
pub(crate) struct KeptResponses(Mutex<VecDeque<StoredResponse>>);

#[derive(Debug)]
struct StoredResponse {
    id: String,
    response: Value,
    /// Events of a background stream.
    events: Vec<Bytes>,
    /// Background task that generates it.
    task: Option<AbortHandle>,
}

#[derive(Debug, Deserialize)]
struct Continued {
    previous_response_id: Option<String>,
}

impl KeptResponses {
    /// Stores a response or its new state. A cancelled one stays cancelled.
    pub(crate) fn keep(&self, id: &str, response: Value) {
        let mut kept = self.lock();
        if let Some(known) = kept.iter_mut().find(|kept| kept.id == id) {
            if known.response["status"] != "cancelled" {
                known.response = response;
            }
            return;
        }
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back(StoredResponse {
            id: id.to_owned(),
            response,
            events: Vec::new(),
            task: None,
        });
    }

    /// Forgets all responses, and ends the tasks that generate them.
    pub(crate) fn clear(&self) {
        for task in self.lock().drain(..).filter_map(|kept| kept.task) {
            task.abort();
        }
    }

    /// Stores an event of a background stream.
    pub(crate) fn add_event(&self, id: &str, event: Bytes) {
        if let Some(kept) = self.lock().iter_mut().find(|kept| kept.id == id) {
            kept.events.push(event);
        }
    }

    /// Records the background task of a response.
    pub(crate) fn made_by(&self, id: &str, task: AbortHandle) {
        if let Some(kept) = self.lock().iter_mut().find(|kept| kept.id == id) {
            kept.task = Some(task);
        }
    }

    pub(crate) fn find(&self, id: &str) -> Result<Value, Refusal> {
        let kept = self.lock();
        let found = kept.iter().find(|kept| kept.id == id);
        found
            .map(|kept| kept.response.clone())
            .ok_or_else(|| Refusal::unknown_response(id))
    }

    /// Returns the events so far of a background stream.
    pub(crate) fn events(&self, id: &str) -> Result<Bytes, Refusal> {
        self.find(id)?;
        let kept = self.lock();
        let found = kept.iter().find(|kept| kept.id == id && !kept.events.is_empty());
        found
            .map(|kept| Bytes::from(kept.events.concat()))
            .ok_or_else(|| Refusal::no_events(id))
    }

    /// Cancels a background response, and returns it.
    pub(crate) fn cancel(&self, id: &str) -> Result<Value, Refusal> {
        let mut kept = self.lock();
        let found = kept.iter_mut().find(|kept| kept.id == id);
        let found = found.ok_or_else(|| Refusal::unknown_response(id))?;
        if !["queued", "in_progress"].contains(&found.response["status"].as_str().unwrap_or_default()) {
            return Err(Refusal::not_to_cancel());
        }
        found.response["status"] = "cancelled".into();
        if let Some(task) = found.task.take() {
            task.abort();
        }
        Ok(found.response.clone())
    }

    /// Checks that the previous response of a request is stored.
    pub(crate) fn check_previous(&self, body: &[u8]) -> Result<(), Refusal> {
        let body: Continued = read(body)?;
        body.previous_response_id
            .map_or(Ok(()), |id| self.find(&id).map(drop))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<StoredResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
