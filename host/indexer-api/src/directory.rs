//! Directory of registered services: by key for changes, by context for queries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use routing::{StoreId, WorkerId};

use crate::follow::FollowedSource;
use crate::profile::HashProfile;
use crate::service::{QueryContext, Service, ServiceKey};

/// Registered service and its source in the index.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredService {
    pub(crate) service: Arc<Service>,
    pub(crate) followed: FollowedSource,
}

impl RegisteredService {
    fn is_engine(&self) -> bool {
        matches!(self.followed, FollowedSource::Engine(_))
    }
}

/// All registered services.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    services: BTreeMap<ServiceKey, RegisteredService>,
    contexts: HashMap<QueryContext, Vec<RegisteredService>>,
}

impl Directory {
    pub(crate) fn get(&self, key: &ServiceKey) -> Option<&RegisteredService> {
        self.services.get(key)
    }

    /// Returns the services, sorted by key.
    pub(crate) fn services(&self) -> impl Iterator<Item = &RegisteredService> {
        self.services.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.services.len()
    }

    pub(crate) fn contexts(&self) -> &HashMap<QueryContext, Vec<RegisteredService>> {
        &self.contexts
    }

    /// Returns the contexts with their engines. Leaves out contexts without engines.
    pub(crate) fn engine_contexts(&self) -> impl Iterator<Item = (&QueryContext, Vec<&RegisteredService>)> {
        let contexts = self.contexts.iter().map(|(context, services)| {
            let engines = services.iter().filter(|known| known.is_engine());
            (context, engines.collect::<Vec<_>>())
        });
        contexts.filter(|(_, engines)| !engines.is_empty())
    }

    /// Returns the services of a context.
    pub(crate) fn of(&self, context: &QueryContext) -> &[RegisteredService] {
        self.contexts.get(context).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has_endpoint(&self, endpoint: &str) -> bool {
        self.services().any(|known| &*known.service.endpoint == endpoint)
    }

    /// Returns the hash profile of a context. All services of a context that have a profile have the same one.
    pub(crate) fn profile(&self, context: &QueryContext) -> Option<&HashProfile> {
        self.of(context)
            .iter()
            .find_map(|known| known.service.profile.as_ref())
    }

    /// Returns the stores and the engines of a tenant's model. Block names do not distinguish models, so only engines
    /// of the same model can share a store.
    pub(crate) fn sharing(&self, tenant: &str, model: &str) -> (Vec<StoreId>, Vec<WorkerId>) {
        let (mut stores, mut engines) = (Vec::new(), Vec::new());
        let of_model =
            |known: &&RegisteredService| &*known.service.tenant == tenant && &*known.service.model == model;
        for known in self.services().filter(of_model) {
            match known.followed {
                FollowedSource::Store(store) => stores.push(store),
                FollowedSource::Engine(worker) => engines.push(worker),
            }
        }
        (stores, engines)
    }

    pub(crate) fn insert(&mut self, registered: RegisteredService) {
        let service = &registered.service;
        let context = self.contexts.entry(service.context()).or_default();
        context.push(registered.clone());
        context.sort_by_key(|known| known.service.key());
        self.services.insert(service.key(), registered);
    }

    /// Removes a service. The last service of a context removes the context and its profile.
    pub(crate) fn remove(&mut self, key: &ServiceKey) -> Option<RegisteredService> {
        let removed = self.services.remove(key)?;
        let context = removed.service.context();
        if let Some(services) = self.contexts.get_mut(&context) {
            services.retain(|known| known.followed != removed.followed);
            if services.is_empty() {
                self.contexts.remove(&context);
            }
        }
        Some(removed)
    }
}
