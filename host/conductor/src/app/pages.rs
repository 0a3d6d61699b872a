//! Sources of the admin pages, from the parts of a router.

use std::path::PathBuf;
use std::sync::Arc;

use admin_pages::{AdminPages, FeedSources, PageSources};
use live_updates::LiveSources;
use proxy::Proxy;

use super::caches::Caches;
use crate::reload::Reloader;

/// Returns the pages of a router. `program` is the file of this program, which runs simulations.
pub(super) fn admin_pages(
    reloader: &Reloader,
    caches: &Caches,
    proxy: &Arc<Proxy>,
    program: Option<PathBuf>,
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
        workers: Arc::clone(&reloader.live.sources),
        proxy: Arc::clone(proxy),
        program,
    })
}
