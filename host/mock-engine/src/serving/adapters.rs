//! LoRA adapters: configured ones, and those loaded and unloaded at run time, as in vLLM with
//! `VLLM_ALLOW_RUNTIME_LORA_UPDATING`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use crate::config::MockConfig;
use crate::event::Adapter;
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;

/// The loaded adapters.
#[derive(Debug)]
pub(crate) struct LoadedAdapters {
    loaded: Mutex<Loaded>,
    /// The configured ones.
    at_start: Loaded,
}

#[derive(Debug, Clone)]
struct Loaded {
    adapters: Vec<Adapter>,
    next_id: u32,
}

#[derive(Debug, Deserialize)]
struct LoadBody {
    lora_name: String,
    lora_path: String,
}

#[derive(Debug, Deserialize)]
struct UnloadBody {
    lora_name: String,
}

impl LoadedAdapters {
    /// Creates the configured adapters, numbered from 1.
    pub(crate) fn of(config: &MockConfig) -> Self {
        let name = |(id, name): (u32, &String)| Adapter {
            id,
            name: name.as_str().into(),
        };
        let adapters: Vec<Adapter> = (1..).zip(&config.loras).map(name).collect();
        let next_id = u32::try_from(adapters.len()).unwrap_or(u32::MAX - 1) + 1;
        let at_start = Loaded { adapters, next_id };
        Self {
            loaded: Mutex::new(at_start.clone()),
            at_start,
        }
    }

    /// Serves the adapters of the start again.
    pub(crate) fn restart(&self) {
        self.loaded().clone_from(&self.at_start);
    }

    /// Returns the adapter with that name.
    pub(super) fn find(&self, name: &str) -> Option<Adapter> {
        let loaded = self.loaded();
        loaded
            .adapters
            .iter()
            .find(|adapter| *adapter.name == *name)
            .cloned()
    }

    /// Returns their names in the order of loading.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        let loaded = self.loaded();
        loaded
            .adapters
            .iter()
            .map(|adapter| Arc::clone(&adapter.name))
            .collect()
    }

    /// Handles `POST /v1/load_lora_adapter`, and returns the text of the answer.
    pub(super) fn load(&self, config: &MockConfig, body: &[u8]) -> Result<String, Refusal> {
        let body: LoadBody = read(body)?;
        let name = &*body.lora_name;
        if name.is_empty() || body.lora_path.is_empty() {
            let message = "Both 'lora_name' and 'lora_path' must be provided.";
            return Err(Refusal::adapter_input(message.to_owned()));
        }
        if name == config.model {
            let message = format!("The lora adapter '{name}' conflicts with a served base model.");
            return Err(Refusal::adapter_input(message));
        }
        let mut loaded = self.loaded();
        if loaded.adapters.iter().any(|adapter| *adapter.name == *name) {
            let message = format!(
                "The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set \
                 'load_inplace' to True."
            );
            return Err(Refusal::adapter_input(message));
        }
        let adapter = Adapter {
            id: loaded.next_id,
            name: name.into(),
        };
        loaded.next_id += 1;
        loaded.adapters.push(adapter);
        Ok(format!("Success: LoRA adapter '{name}' added successfully."))
    }

    /// Handles `POST /v1/unload_lora_adapter`, and returns the text of the answer.
    pub(super) fn unload(&self, body: &[u8]) -> Result<String, Refusal> {
        let body: UnloadBody = read(body)?;
        let name = &*body.lora_name;
        let mut loaded = self.loaded();
        let before = loaded.adapters.len();
        loaded.adapters.retain(|adapter| *adapter.name != *name);
        if loaded.adapters.len() == before {
            return Err(Refusal::unknown_adapter(name));
        }
        Ok(format!("Success: LoRA adapter '{name}' removed successfully."))
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
