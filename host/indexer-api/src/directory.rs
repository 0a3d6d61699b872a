//! Who is registered: by key for changing, by context for queries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use routing::{StoreId, WorkerId};

use crate::follow::Followed;
use crate::profile::HashProfile;
use crate::service::{Context, Service, ServiceKey};

/// A service that is followed.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) service: Arc<Service>,
    pub(crate) followed: Followed,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    services: BTreeMap<ServiceKey, Registered>,
    contexts: HashMap<Context, Vec<Registered>>,
}

impl Directory {
    pub(crate) fn get(&self, key: &ServiceKey) -> Option<&Registered> {
        self.services.get(key)
    }

    /// Sorted by key.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Registered> {
        self.services.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.services.len()
    }

    pub(crate) fn contexts(&self) -> &HashMap<Context, Vec<Registered>> {
        &self.contexts
    }

    /// The services of a context; none where nobody registered any.
    pub(crate) fn of(&self, context: &Context) -> &[Registered] {
        self.contexts.get(context).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has_endpoint(&self, endpoint: &str) -> bool {
        self.services().any(|known| &*known.service.endpoint == endpoint)
    }

    /// The profile of a context: every service that tells one tells the same.
    pub(crate) fn profile(&self, context: &Context) -> Option<&HashProfile> {
        self.of(context)
            .iter()
            .find_map(|known| known.service.profile.as_ref())
    }

    /// The stores that have something to do with a tenant's model, and the engines that share them: block names do not tell
    /// models apart, so only engines of the same one can.
    pub(crate) fn sharing(&self, tenant: &str, model: &str) -> (Vec<StoreId>, Vec<WorkerId>) {
        let (mut stores, mut engines) = (Vec::new(), Vec::new());
        let of_model =
            |known: &&Registered| &*known.service.tenant == tenant && &*known.service.model == model;
        for known in self.services().filter(of_model) {
            match known.followed {
                Followed::Store(store) => stores.push(store),
                Followed::Engine(worker) => engines.push(worker),
            }
        }
        (stores, engines)
    }

    pub(crate) fn insert(&mut self, registered: Registered) {
        let service = &registered.service;
        let context = self.contexts.entry(service.context()).or_default();
        context.push(registered.clone());
        context.sort_by_key(|known| known.service.key());
        self.services.insert(service.key(), registered);
    }

    /// A context ends with its last service, and its profile with it.
    pub(crate) fn remove(&mut self, key: &ServiceKey) -> Option<Registered> {
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
