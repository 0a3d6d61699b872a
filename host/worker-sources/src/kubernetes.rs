//! Kubernetes: a list of objects, then a watch of their changes, over and over.
//!
//! A watch starts from the version of the list, ends after a minute, and starts again from the last version seen. An
//! expired version (410 Gone) leads to a new list. A watch that is cut loses nothing: a line counts once it is whole.

use std::time::{Duration, Instant};

use http::StatusCode;
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{sleep, timeout};
use worker_discovery::{Decoded, KubeStore, KubeView, LineBuffer, ListPages, WatchChange};

use crate::client::SourceClient;
use crate::error::SourceError;
use crate::spec::{KubeObjects, KubeSource, SourceSpec};
use crate::state::SourceState;

/// Objects of a page, which has to fit into `max-bytes`.
const PAGE: usize = 50;
/// Most pages of a list.
const MOST_PAGES: usize = 400;
/// Time after which the API server ends a watch.
const WATCH_SECONDS: u64 = 60;
/// Silence after which a watch is given up: longer than a watch lasts.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 15);
/// First pause after a failure, which doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause after failures.
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Pause after a watch that ended at once.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Follower of the objects of one source.
pub(crate) struct Follower {
    client: SourceClient,
    /// Path with the selector of the objects.
    path: String,
    view: KubeView,
    every: Duration,
    limit: Duration,
    max_bytes: usize,
}

impl Follower {
    pub(crate) fn new(source: &KubeSource, spec: &SourceSpec) -> Self {
        Self {
            client: SourceClient::new(&source.server, spec.timeout, spec.max_bytes),
            path: path(source),
            view: KubeView {
                is_slices: matches!(source.objects, KubeObjects::Service(_)),
                port: source.port.clone(),
                defaults: spec.defaults.clone(),
            },
            every: spec.every,
            limit: spec.timeout,
            max_bytes: spec.max_bytes,
        }
    }

    /// Lists the objects.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn list_once(&self) -> Result<Decoded, SourceError> {
        let mut store = KubeStore::new(self.view.clone());
        self.list(&mut store).await?;
        Ok(store.answer()?)
    }

    /// Follows the objects until the task is aborted.
    pub(crate) async fn follow(&self, state: &SourceState) {
        let mut store = KubeStore::new(self.view.clone());
        let mut pause = FIRST_PAUSE;
        loop {
            match self.round(&mut store, state).await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(error) => {
                    state.record(Err(error));
                    sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
            }
        }
    }

    /// Lists if it must, then watches until the watch ends.
    async fn round(&self, store: &mut KubeStore, state: &SourceState) -> Result<(), SourceError> {
        while store.version().is_none() || state.doubted() > 0 {
            if state.doubted() > 0 {
                // The next answer is another list, not the same one again.
                sleep(self.every).await;
            }
            self.list(store).await?;
            state.record(store.answer().map_err(SourceError::from));
        }
        let began = Instant::now();
        self.watch(store, state).await?;
        if began.elapsed() < SHORT_WATCH && state.doubted() == 0 {
            sleep(SHORT_WATCH).await;
        }
        Ok(())
    }

    async fn list(&self, store: &mut KubeStore) -> Result<(), SourceError> {
        let mut pages = ListPages::default();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let token = next.as_deref().map(encoded);
            let token = token.map_or_else(String::new, |token| format!("&continue={token}"));
            let path = format!("{}&limit={PAGE}{token}", self.path);
            // The client has a time limit for each request.
            let reply = self.client.get(&path).await?;
            if reply.status != StatusCode::OK {
                return Err(SourceError::Status(reply.status));
            }
            next = store.read_page(&mut pages, &reply.body)?;
            if next.is_none() {
                store.replace(pages);
                return Ok(());
            }
        }
        Err(SourceError::Pages(MOST_PAGES))
    }

    /// Watches until the watch ends, is cut, expires, or an answer is doubted.
    async fn watch(&self, store: &mut KubeStore, state: &SourceState) -> Result<(), SourceError> {
        let version = store.version().unwrap_or_default();
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            self.path,
            encoded(version)
        );
        let opened = timeout(self.limit, self.client.open(&path)).await;
        let mut body = match opened.unwrap_or(Err(SourceError::Timeout(self.limit))) {
            Err(SourceError::Status(StatusCode::GONE)) => {
                store.expire();
                return Ok(());
            }
            opened => opened?,
        };
        // The source may have failed since the last answer.
        state.record(store.answer().map_err(SourceError::from));
        let mut lines = LineBuffer::new(self.max_bytes);
        // A body that is cut ends the watch as its end does: the next one repeats what was not whole.
        while let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await {
            let Ok(piece) = frame.into_data() else { continue };
            let mut is_changed = false;
            for line in lines.take(&piece)? {
                match store.apply(&line)? {
                    WatchChange::Object => is_changed = true,
                    WatchChange::Bookmark => state.is_alive(),
                    WatchChange::Expired => return Ok(()),
                }
            }
            if is_changed {
                state.record(store.answer().map_err(SourceError::from));
            }
            if state.doubted() > 0 {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns the path of the objects, up to more parameters.
fn path(source: &KubeSource) -> String {
    let namespace = encoded(&source.namespace);
    match &source.objects {
        KubeObjects::Service(name) => {
            let selector = encoded(&format!("kubernetes.io/service-name={name}"));
            format!(
                "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}"
            )
        }
        KubeObjects::Pods(selector) => {
            format!(
                "/api/v1/namespaces/{namespace}/pods?labelSelector={}",
                encoded(selector)
            )
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
