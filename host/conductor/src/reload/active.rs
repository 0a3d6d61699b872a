//! Active configuration: the text, its meaning, and the resources that requests are served with.

use conductor_config::Config;
use external_resources::ExternalResources;
use routing::{Fleet, Generation};
use runtime_overrides::Overlays;
use worker_discovery::{LaidOver, SourceWorkers, lay_over};

use crate::compose;

/// Candidate for activation: a configuration's text and meaning, with its resources.
pub(super) struct Candidate {
    pub(super) text: String,
    pub(super) file: Config,
    pub(super) discovered: Vec<SourceWorkers>,
    pub(super) overlays: Overlays,
    pub(super) resources: ExternalResources,
}

/// Configuration that requests are served with.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    /// Text that it came from.
    pub(crate) text: String,
    /// Configuration of the text.
    pub(crate) file: Config,
    /// Workers of the sources that the text names.
    pub(crate) discovered: Vec<SourceWorkers>,
    /// Configuration of the text with the discovered workers.
    pub(crate) base: LaidOver,
    /// Changes made over HTTP.
    pub(crate) overlays: Overlays,
    /// Configuration of the text with the discovered workers and the overlays.
    pub(crate) config: Config,
    pub(crate) resources: ExternalResources,
    pub(crate) fleet: Fleet,
    pub(crate) generation: Generation,
}

impl ActiveConfig {
    /// Returns the configuration before the first one: the start-up settings of `config`, without pools, routes and
    /// resources. `overlays` are those of the last run.
    pub(crate) fn idle(config: &Config, overlays: Overlays) -> Self {
        let idle = Config {
            clients: Vec::new(),
            policies: Vec::new(),
            pools: Vec::new(),
            models: Vec::new(),
            discovery: Vec::new(),
            stores: Vec::new(),
            routes: Vec::new(),
            ..config.clone()
        };
        Self {
            text: String::new(),
            file: idle.clone(),
            discovered: Vec::new(),
            base: lay_over(&idle, &[]),
            overlays,
            config: idle,
            resources: ExternalResources::default(),
            fleet: Fleet::default(),
            generation: Generation(0),
        }
    }

    /// Returns true before the first configuration.
    pub(super) fn is_idle(&self) -> bool {
        self.generation == Generation(0)
    }

    /// Returns the active configuration again, for a plan that changes something else.
    pub(super) fn candidate(&self) -> Candidate {
        Candidate {
            text: self.text.clone(),
            file: self.file.clone(),
            discovered: self.discovered.clone(),
            overlays: self.overlays.clone(),
            resources: self.resources.clone(),
        }
    }

    /// Returns the configuration after this one.
    pub(super) fn next(&self, candidate: Candidate) -> Self {
        let Candidate {
            text,
            file,
            discovered,
            overlays,
            resources,
        } = candidate;
        let base = lay_over(&file, &discovered);
        let config = overlays.over(&base.config);
        let (fleet, _) = self.fleet.next(compose::worker_specs(&config));
        Self {
            text,
            file,
            discovered,
            base,
            overlays,
            config,
            resources,
            fleet,
            generation: Generation(self.generation.0 + 1),
        }
    }
}
