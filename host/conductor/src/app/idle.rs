//! Reloader of a router before its first configuration.

use std::sync::Arc;

use admin_pages::AdminKey;
use admin_pages::control::Status;
use local_files::ConfigSource;
use logging::LogFilter;
use proxy::SnapshotCell;

use super::caches::Caches;
use super::meters::Meters;
use super::startup::Startup;
use crate::config_hash::ConfigHash;
use crate::listeners::ListenerHandles;
use crate::reload::{ActiveConfig, CircuitWatch, Journal, Live, Planner, RefusedPlan, Reloader, Steps};

/// Parts that the reloader works on.
pub(super) struct IdleParts<'a> {
    pub(super) source: ConfigSource,
    pub(super) startup: Box<Startup>,
    pub(super) meters: &'a Meters,
    pub(super) caches: &'a Caches,
    pub(super) log: Option<LogFilter>,
}

impl IdleParts<'_> {
    /// Returns the reloader with an active configuration and a snapshot that have no pools and routes. The first plan
    /// follows them as every plan follows the one before.
    ///
    /// # Errors
    /// [`RefusedPlan`] if the snapshot cannot be built.
    pub(super) fn reloader(self) -> Result<Box<Reloader>, RefusedPlan> {
        let Self {
            source,
            startup,
            meters,
            caches,
            log,
        } = self;
        let Startup {
            config,
            library,
            overlays,
            ..
        } = *startup;
        let active = ActiveConfig::idle(&config, overlays);
        let steps = Steps::default();
        let planner = Planner {
            steps: &steps,
            source: &source,
            metrics: &meters.proxy,
            recorder: &meters.recorder,
            exporter: &meters.exporter,
            discovery: &caches.plane.discovery,
            sources: &meters.sources,
            max_connections: config.server.max_connections,
        };
        let snapshot = planner.plan_idle(&active)?;
        Ok(Box::new(Reloader {
            live: Live {
                cell: Arc::new(SnapshotCell::new(snapshot, &meters.proxy)),
                metrics: meters.proxy.clone(),
                recorder: Arc::clone(&meters.recorder),
                exporter: Arc::clone(&meters.exporter),
                discovery: Arc::clone(&caches.plane.discovery),
                sources: Arc::clone(&meters.sources),
                admin_key: AdminKey::default(),
                indexer: None,
                listeners: ListenerHandles::default(),
                log,
                config_hash: ConfigHash::default(),
            },
            source,
            library,
            steps,
            status: Status::default(),
            metrics: meters.control.clone(),
            circuits: CircuitWatch::default(),
            journal: Journal::new(meters.changes.clone()),
            at_start: config,
            active,
            refused_discovery: None,
            agreed: None,
        }))
    }
}
