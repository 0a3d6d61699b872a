//! Mock engines, and the part of a configuration that names them.

use anyhow::Result;
use mock_engine::{MockConfig, MockEngine};

/// Fleet of mock engines.
#[derive(Debug)]
pub struct Fleet {
    /// Engines in the order of their start.
    pub engines: Vec<MockEngine>,
}

impl Fleet {
    /// Starts `count` engines that differ only in what `adjust` changes.
    ///
    /// # Errors
    /// Where one does not start.
    pub async fn start(count: usize, adjust: impl Fn(usize, &mut MockConfig)) -> Result<Self> {
        let mut engines = Vec::with_capacity(count);
        for number in 0..count {
            let mut config = MockConfig::default();
            adjust(number, &mut config);
            engines.push(MockEngine::start(config).await?);
        }
        Ok(Self { engines })
    }

    /// Returns `[[pools.chat.workers]]` tables for all of them, named `w0`, `w1` and so on.
    #[must_use]
    pub fn workers_toml(&self) -> String {
        workers_toml(&self.engines)
    }
}

/// Returns `[[pools.chat.workers]]` tables for these engines, named `w0`, `w1` and so on.
#[must_use]
pub fn workers_toml(engines: &[MockEngine]) -> String {
    let all = engines.iter().enumerate();
    all.map(|(number, engine)| worker_toml(number, engine)).collect()
}

/// Returns the `[[pools.chat.workers]]` table of one engine, named `w` and its number.
#[must_use]
pub fn worker_toml(number: usize, engine: &MockEngine) -> String {
    format!(
        "[[pools.chat.workers]]\nname = \"w{number}\"\nurl = \"{}\"\nkv-events = \"{}\"\nkv-replay = \"{}\"\n\n",
        engine.url(),
        engine.kv_events(),
        engine.kv_replay(),
    )
}

/// Returns one route that sends everything to the pool `chat` by this policy.
#[must_use]
pub fn route_all(policy: &str) -> String {
    format!("[[routes]]\npool = \"chat\"\npolicy = \"{policy}\"\n")
}
