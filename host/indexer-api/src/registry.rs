//! Registration of services: one at a time, without waiting for a publisher.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use axum::http::StatusCode;
use kv_index::SharedPrefixIndex;
use tracing::{info, warn};

use crate::directory::{Directory, RegisteredService};
use crate::follow::{FeedFollower, FollowError};
use crate::refusal::Refusal;
use crate::service::{Service, ServiceKey};

/// The registered services and their follower. Kept in memory only: clients register again after a restart.
pub(crate) struct Registry {
    directory: RwLock<Directory>,
    pub(crate) follow: Arc<dyn FeedFollower>,
    index: SharedPrefixIndex,
}

impl Registry {
    pub(crate) fn new(follow: Arc<dyn FeedFollower>, index: SharedPrefixIndex) -> Self {
        Self {
            directory: RwLock::default(),
            follow,
            index,
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers and follows a service. A second registration with equal values changes nothing.
    pub(crate) fn register(&self, service: Service) -> Result<(), Refusal> {
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        let key = service.key();
        match directory.get(&key) {
            Some(known) if *known.service == service => return Ok(()),
            Some(_) => {
                return Err(Refusal::registration(format!(
                    "conflicting registration for service key: {key}"
                )));
            }
            None => {}
        }
        self.check_workers(&service, &key)?;
        if directory.has_endpoint(&service.endpoint) {
            return Err(endpoint_taken(&service));
        }
        let known = directory.profile(&service.context());
        if let (Some(known), Some(profile)) = (known, &service.profile)
            && known != profile
        {
            return Err(Refusal::registration(
                "failed to register prefix context: registration conflicts with the ContextKey hash profile",
            ));
        }
        let followed = self.follow.follow(&service).map_err(|error| refuse(&error))?;
        info!(service = %key, endpoint = &*service.endpoint, ?followed, "registered");
        let service = Arc::new(service);
        directory.insert(RegisteredService {
            service: Arc::clone(&service),
            followed,
        });
        self.share(&directory, &service);
        Ok(())
    }

    /// Binds the stores of a model to its engines.
    fn share(&self, directory: &Directory, changed: &Service) {
        let (stores, engines) = directory.sharing(&changed.tenant, &changed.model);
        for store in stores {
            self.index.bind_store(store, None, &engines);
        }
    }

    /// Checks for conflicts with the router's workers, which are instances of the default tenant.
    fn check_workers(&self, service: &Service, key: &ServiceKey) -> Result<(), Refusal> {
        for known in self.follow.workers().iter() {
            if known.feeds.iter().any(|feed| feed.endpoint == service.endpoint) {
                return Err(endpoint_taken(service));
            }
            if known.worker.spec().name == service.instance && &*service.tenant == "default" {
                return Err(Refusal::registration(format!(
                    "conflicting registration for service key: {key}"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn unregister(&self, key: &ServiceKey) -> Result<(), Refusal> {
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        let removed = directory
            .remove(key)
            .ok_or_else(|| Refusal::unknown_service(key))?;
        self.share(&directory, &removed.service);
        drop(directory);
        self.follow.unfollow(removed.followed);
        info!(service = %key, "unregistered");
        Ok(())
    }
}

fn endpoint_taken(service: &Service) -> Refusal {
    let endpoint = &service.endpoint;
    Refusal::registration(format!(
        "conflicting active registration for endpoint: {endpoint}"
    ))
}

fn refuse(error: &FollowError) -> Refusal {
    warn!(error = error as &dyn std::error::Error, "a registration failed");
    match error {
        FollowError::Endpoint { .. } => Refusal::plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Failed to subscribe: failed to start ZMQ client: initial connection failed: {error}"),
        ),
        FollowError::NoRoom(_) => Refusal::plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Failed to subscribe: {error}"),
        ),
    }
}
