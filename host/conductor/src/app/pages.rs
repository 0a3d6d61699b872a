//! Sources of the admin pages, from the parts of a router.

use std::path::PathBuf;
use std::sync::Arc;

use admin_pages::{AdminPages, FeedSources, FleetSources, PageSources};
use live_updates::LiveSources;
use proxy::Proxy;
use replica_plane::{AgreedHandle, ReplicaReports};

use super::caches::Caches;
use crate::reload::Reloader;

/// Returns the pages of a router. `program` is the file of this program, which runs simulations; `replicas` are the
/// reports about other routers, and the fleet's decisions.
pub(super) fn admin_pages(
    reloader: &Reloader,
    caches: &Caches,
    proxy: &Arc<Proxy>,
    program: Option<PathBuf>,
    replicas: Option<(ReplicaReports, AgreedHandle)>,
) -> AdminPages {
    AdminPages::new(PageSources {
        key: reloader.live.admin_key.clone(),
        status: reloader.status.clone(),
        texts: reloader.journal.texts().clone(),
        source: reloader.source.clone(),
        engine: reloader.library.engine().clone(),
        live: LiveSources {
            cell: Arc::clone(&reloader.live.cell),
            feeds: Arc::clone(&caches.plane.feeds),
            index: Arc::clone(&caches.plane.index),
            recorder: Arc::clone(&reloader.live.recorder),
            changes: reloader.journal.log().clone(),
        },
        feeds: FeedSources {
            live: Arc::clone(&caches.live),
            discovery: Arc::clone(&caches.plane.discovery),
        },
        fleet: FleetSources {
            workers: Arc::clone(&reloader.live.sources),
            replicas,
        },
        proxy: Arc::clone(proxy),
        program,
    })
}
