//! Mock engines that share a request between two of them, and the part of a configuration that names them.

use std::fmt::Write as _;

use anyhow::Result;
use mock_engine::{Fabric, MockConfig, MockEngine, PdConfig, PdDialect, PdRole};

/// Prefill and decode engines on one network.
#[derive(Debug)]
pub struct SplitFleet {
    /// Engines that compute prompts.
    pub prefill: Vec<MockEngine>,
    /// Engines that answer.
    pub decode: Vec<MockEngine>,
    dialect: PdDialect,
    fabric: Fabric,
}

impl SplitFleet {
    /// Starts so many prefill and decode engines that differ only in what `adjust` changes.
    ///
    /// # Errors
    /// Where one does not start.
    pub async fn start(
        dialect: PdDialect,
        (prefill, decode): (usize, usize),
        adjust: impl Fn(&mut MockConfig),
    ) -> Result<Self> {
        let fabric = Fabric::new();
        let start = async |role| {
            let mut config = MockConfig {
                pd: Some(PdConfig::new(role, dialect, &fabric)),
                ..MockConfig::default()
            };
            adjust(&mut config);
            MockEngine::start(config).await
        };
        let mut fleet = Self {
            prefill: Vec::with_capacity(prefill),
            decode: Vec::with_capacity(decode),
            dialect,
            fabric: fabric.clone(),
        };
        for _ in 0..prefill {
            fleet.prefill.push(start(PdRole::Prefill).await?);
        }
        for _ in 0..decode {
            fleet.decode.push(start(PdRole::Decode).await?);
        }
        Ok(fleet)
    }

    /// Returns every engine with its role and its name in a pool of [`Self::pool_toml`], less the pool's own: `p0`,
    /// `d0` and so on.
    pub fn engines(&self) -> impl Iterator<Item = (&'static str, String, &MockEngine)> {
        let prefill = self.prefill.iter().enumerate();
        let decode = self.decode.iter().enumerate();
        prefill
            .map(|(number, engine)| ("prefill", format!("p{number}"), engine))
            .chain(decode.map(|(number, engine)| ("decode", format!("d{number}"), engine)))
    }

    /// Returns a pool of all of them, named `POOL-p0`, `POOL-d0` and so on; `pd` are further members of its `pd` table,
    /// such as `, alone = false`. Their cache events are left alone.
    #[must_use]
    pub fn pool_toml(&self, pool: &str, pd: &str) -> String {
        let dialect = self.dialect_name();
        let mut text = format!("[pools.{pool}]\npd = {{ dialect = \"{dialect}\"{pd} }}\n");
        for (role, name, engine) in self.engines() {
            let _ = write!(
                text,
                "[[pools.{pool}.workers]]\nname = \"{pool}-{name}\"\nrole = \"{role}\"\nurl = \"{}\"\nkv-events = \"off\"\n",
                engine.url()
            );
            if let Some(bootstrap) = engine.bootstrap() {
                let _ = writeln!(text, "bootstrap = \"{bootstrap}\"");
            }
        }
        text
    }

    /// Returns the same pool without a dialect. Bootstrap servers are configured only if engines do not report their
    /// port.
    #[must_use]
    pub fn detected_toml(&self, pool: &str, pd: &str) -> String {
        let text = self.pool_toml(pool, pd);
        let text = text.replace(
            &format!("dialect = \"{}\"", self.dialect_name()),
            "dialect = \"auto\"",
        );
        if self.dialect != PdDialect::Sglang {
            return text;
        }
        let lines = text.lines().filter(|line| !line.starts_with("bootstrap"));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Ends the time for which its engines keep blocks that are not fetched, and wait for blocks that are not offered.
    pub fn expire(&self) {
        self.fabric.expire();
    }

    fn dialect_name(&self) -> &'static str {
        match self.dialect {
            PdDialect::Nixl => "nixl",
            PdDialect::Mooncake => "mooncake-connector",
            PdDialect::Store => "store",
            PdDialect::Sglang => "sglang",
        }
    }

    /// Returns the engines that still compute, wait or keep blocks of a request. Empty once all requests have ended.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let busy = self.engines().filter(|(_, _, engine)| !engine.stats().is_idle());
        busy.map(|(_, name, engine)| {
            let stats = engine.stats();
            format!(
                "{name}: {} running, {} waiting, {} blocks used, {} pinned",
                stats.running, stats.waiting, stats.blocks_used, stats.pinned_blocks
            )
        })
        .collect()
    }
}
