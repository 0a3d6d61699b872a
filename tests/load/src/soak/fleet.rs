//! The mock engines, and the router's file that names them.

use anyhow::{Context, Result};
use harness::{Random, route_all, worker_toml};
use mock_engine::MockEngine;

use crate::loopback::Loopback;

/// Builtins and the policy of the folder, which is swapped.
pub(super) const POLICIES: [&str; 5] = [
    "cache-aware",
    "load-weighted",
    "round-robin",
    "session-affinity",
    "swapped",
];

pub(super) struct Fleet {
    pub(super) engines: Vec<MockEngine>,
}

/// One version of the router's file.
#[derive(Debug, Clone)]
pub(super) struct Edition {
    policy: &'static str,
    /// Engines that are not in it.
    without: Vec<usize>,
    attempts: u32,
    idle_s: u32,
}

impl Fleet {
    pub(super) async fn start(count: u16, seed: u64) -> Result<Self> {
        let fleet = harness::Fleet::start(count.into(), |number, config| {
            config.seed = seed + number as u64;
            config.time_scale = 20.0;
        });
        let engines = fleet.await.context("failed to start a mock engine")?.engines;
        Ok(Self { engines })
    }

    /// Returns the file with everything in it.
    pub(super) fn whole(&self) -> Edition {
        Edition {
            policy: POLICIES[0],
            without: Vec::new(),
            attempts: 3,
            idle_s: 3,
        }
    }

    /// Returns another edition: other policy, other limits, and up to `gone` engines less.
    pub(super) fn other(&self, random: &mut Random, gone: usize) -> Edition {
        let mut without: Vec<_> = (0..random.below(gone + 1))
            .map(|_| random.below(self.engines.len()))
            .collect();
        without.sort_unstable();
        without.dedup();
        Edition {
            policy: random.one_of(&POLICIES),
            without,
            attempts: 3 + random.below(2) as u32,
            idle_s: 3 + random.below(3) as u32,
        }
    }

    pub(super) fn config(&self, edition: &Edition, listen: Loopback, admin: Loopback) -> String {
        let (listen, admin) = (listen.address(), admin.address());
        let Edition {
            policy,
            attempts,
            idle_s,
            ..
        } = edition;
        let mut text = format!(
            "policy-dir = \"policies\"\n\n[server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\nattempts = {attempts}\n\
             connect-timeout = \"500ms\"\nfirst-byte-timeout = \"5s\"\nidle-timeout = \"{idle_s}s\"\n\n[log]\nlevel = \"warn\"\n\n"
        );
        for (number, engine) in self.engines.iter().enumerate() {
            if !edition.without.contains(&number) {
                text += &worker_toml(number, engine);
            }
        }
        text + &route_all(policy)
    }
}
