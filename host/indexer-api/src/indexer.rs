//! HTTP service: routes and request limits.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::LengthLimitError;
use kv_index::SharedPrefixIndex;
use serde::Serialize;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::access::{self, IndexerAccess};
use crate::answer::{AnswerShape, QueryAnswer};
use crate::cache_route::CacheRequest;
use crate::document::{self, Document, Format};
use crate::follow::FeedFollower;
use crate::lookup::{EngineCandidates, LookupSources};
use crate::refusal::{Reason, Refusal};
use crate::registry::Registry;
use crate::request::{self, EngineSelection, LookupKeys};
use crate::service::{Service, ServiceKey};
use crate::{views, wire};

/// Most large bodies in memory at a time. Further ones wait.
const BODIES: usize = 32;
/// Largest body that does not wait for a permit.
const SMALL_BODY: u64 = 64 << 10;
/// Most large bodies that are parsed and looked up at a time. A parsed body takes several times its bytes.
const LARGE_AT_ONCE: usize = 2;
/// Deadline for receiving a body.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Dependencies of the service.
pub struct IndexerParts {
    /// Index that queries read.
    pub index: SharedPrefixIndex,
    /// Follower of registered publishers.
    pub follow: Arc<dyn FeedFollower>,
    /// Access rules.
    pub access: IndexerAccess,
    /// Largest request body, in bytes.
    pub body_limit: usize,
}

/// The prefix index as an HTTP service.
pub struct Indexer {
    index: SharedPrefixIndex,
    registry: Registry,
    /// Replaced by [`Self::set_access`] while the service runs.
    access: RwLock<Arc<IndexerAccess>>,
    body_limit: usize,
    bodies: Semaphore,
    large: Arc<Semaphore>,
}

type RouteResult = Result<Response<Body>, Refusal>;

#[derive(Serialize)]
struct RegisterAnswer<'r> {
    status: &'static str,
    instance_id: &'r str,
}

#[derive(Serialize)]
struct UnregisterAnswer {
    status: &'static str,
    removed_instances: [String; 1],
}

impl Indexer {
    /// Creates the service, without registrations.
    #[must_use]
    pub fn new(parts: IndexerParts) -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(parts.follow, parts.index.clone()),
            index: parts.index,
            access: RwLock::new(Arc::new(parts.access)),
            body_limit: parts.body_limit,
            bodies: Semaphore::new(BODIES),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        })
    }

    /// Replaces the access rules for later requests.
    pub fn set_access(&self, access: IndexerAccess) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    fn access(&self) -> Arc<IndexerAccess> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers the services of the configuration. A service that fails is logged and skipped.
    pub fn register_all(&self, services: Vec<Service>) {
        for service in services {
            let key = service.key();
            if let Err(refusal) = self.registry.register(service) {
                warn!(service = %key, why = refusal.error, "a configured service is not followed");
            }
        }
    }

    /// Returns a router with one handler for every path. The listener limits connections and the time to receive
    /// heads.
    pub fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .fallback(
                |State(indexer): State<Arc<Self>>, request| async move { indexer.respond(request).await },
            )
            .with_state(self)
    }

    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let format = wire::of_answer(request.headers());
        let answered = self.route(format, request).await;
        answered.unwrap_or_else(|refusal| {
            debug!(status = %refusal.status, error = refusal.error, "a request is refused");
            wire::refuse(format, &refusal)
        })
    }

    async fn route(self: Arc<Self>, format: Format, request: Request<Body>) -> RouteResult {
        let path = request.uri().path();
        let method = match path {
            "/register" | "/unregister" | "/query" | "/query_by_hash" | "/cache" => Method::POST,
            "/services" | "/global_view" | "/health" | "/" => Method::GET,
            _ => return Err(Refusal::plain(StatusCode::NOT_FOUND, "Not found")),
        };
        if *request.method() != method {
            return Err(Refusal::plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "Method not allowed",
            ));
        }
        let access = self.access();
        if !["/health", "/"].contains(&path) {
            access.admit(path, request.headers())?;
        }
        if method == Method::GET {
            return Ok(self.view(format, path));
        }
        let shape = AnswerShape::parse(request.uri().query()).ok_or_else(|| {
            Refusal::bad(Reason::InvalidValue, "shape", "shape must be tenant or instances")
        })?;
        let path = path.to_owned();
        let written = wire::of_body(request.headers(), access.api_key.is_none() && is_change(&path))?;
        let body = request.into_body();
        let is_small = body.size_hint().upper().is_some_and(|most| most <= SMALL_BODY);
        // A slow upload can delay other large bodies, but no small ones.
        let _place = if is_small {
            None
        } else {
            self.bodies.acquire().await.ok()
        };
        let body = self.collect(body).await?;
        if is_small {
            return self.change_or_query(format, shape, &path, written, &body);
        }
        // The threads of the runtime serve the clients' requests too.
        let turn = Arc::clone(&self.large).acquire_owned().await;
        let indexer = Arc::clone(&self);
        let answered = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            indexer.change_or_query(format, shape, &path, written, &body)
        });
        answered.await.unwrap_or_else(|_| {
            Err(Refusal::plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request was abandoned",
            ))
        })
    }

    /// Answers a `POST` request.
    fn change_or_query(
        &self,
        format: Format,
        shape: AnswerShape,
        path: &str,
        written: Format,
        body: &[u8],
    ) -> RouteResult {
        // A list takes 8 bytes an integer: at most twice the bytes of the largest body.
        let most_ints = self.body_limit / size_of::<u32>();
        let body =
            document::read(written, body, most_ints).map_err(|fault| Refusal::document(written, fault))?;
        match path {
            "/register" => self.register(format, &body),
            "/unregister" => self.unregister(format, &body),
            "/query" => {
                let (selection, sought) = request::by_tokens(written, &body)?;
                self.query(format, shape, &selection, &sought)
            }
            "/query_by_hash" => {
                let (selection, sought) = request::by_hashes(written, &body)?;
                self.query(format, shape, &selection, &sought)
            }
            _ => self.cache(format, &body),
        }
    }

    fn view(&self, format: Format, path: &str) -> Response<Body> {
        let directory = self.registry.read();
        let (follow, ok) = (&*self.registry.follow, StatusCode::OK);
        match path {
            "/services" => wire::answer(format, ok, &views::services(&directory, follow, &self.index)),
            "/global_view" => wire::answer(format, ok, &views::global_view(&directory, &self.index)),
            _ => wire::answer(format, ok, &views::health(&directory, follow)),
        }
    }

    async fn collect(&self, body: Body) -> Result<Bytes, Refusal> {
        let limit = self.body_limit;
        let collected = axum::body::to_bytes(body, limit);
        match tokio::time::timeout(BODY_WITHIN, collected).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) if is_too_long(&error) => Err(Refusal::because(
                StatusCode::PAYLOAD_TOO_LARGE,
                Reason::BodyTooLarge,
                format!("the request body is longer than {limit} bytes"),
            )),
            Ok(Err(_)) => Err(incomplete("the request body could not be read")),
            Err(_) => Err(incomplete("the request body did not arrive in time")),
        }
    }

    fn register(&self, format: Format, body: &Document<'_>) -> RouteResult {
        let service = Service::read(body)?;
        let instance = service.instance.clone();
        self.registry.register(service)?;
        let answer = RegisterAnswer {
            status: "registered successfully",
            instance_id: &instance,
        };
        Ok(wire::answer(format, StatusCode::OK, &answer))
    }

    fn unregister(&self, format: Format, body: &Document<'_>) -> RouteResult {
        let key = ServiceKey::read(body)?;
        self.registry.unregister(&key)?;
        let answer = UnregisterAnswer {
            status: "unregistered successfully",
            removed_instances: [key.to_string()],
        };
        Ok(wire::answer(format, StatusCode::OK, &answer))
    }

    fn query(
        &self,
        format: Format,
        shape: AnswerShape,
        selection: &EngineSelection,
        sought: &LookupKeys,
    ) -> RouteResult {
        let candidates = self.look_up(|sources| EngineCandidates::of(selection, sources));
        let found = candidates.query(&self.index, selection, sought)?;
        let left_out = found.not_current.len();
        let answer = QueryAnswer::new(shape, &selection.context.tenant, found);
        let response = wire::answer(format, StatusCode::OK, &answer);
        Ok(wire::with_not_current_count(response, left_out))
    }

    fn cache(&self, format: Format, body: &Document<'_>) -> RouteResult {
        let request = CacheRequest::read(body)?;
        let (answer, left_out) = self.look_up(|sources| request.answer(sources))?;
        let response = wire::answer(format, StatusCode::OK, &answer);
        Ok(wire::with_not_current_count(response, left_out))
    }

    /// Runs a lookup over the current registrations and workers.
    fn look_up<R>(&self, with: impl FnOnce(&LookupSources<'_>) -> R) -> R {
        let workers = self.registry.follow.workers();
        with(&LookupSources {
            index: &self.index,
            directory: &self.registry.read(),
            workers: &workers,
            follow: &*self.registry.follow,
        })
    }
}

impl IndexerAccess {
    /// Authorizes a caller: by the key if there is one, else by host name and origin.
    fn admit(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        if let Some(key) = &self.api_key {
            return key.check(headers);
        }
        if let Some(hosts) = &self.hosts {
            access::check_host(hosts, headers)?;
        }
        if is_change(path) {
            access::check_origin(headers)?;
        }
        Ok(())
    }
}

/// Returns `true` if the route changes the followed publishers.
fn is_change(path: &str) -> bool {
    ["/register", "/unregister"].contains(&path)
}

fn incomplete(error: &str) -> Refusal {
    Refusal::because(StatusCode::REQUEST_TIMEOUT, Reason::BodyIncomplete, error)
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
