//! Event listener and timer of a policy: one instance with a budget of its own, so that its faults cost no decision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{DecisionQueries, Event, EventKinds, EventListener, NoAnswers, PolicyFault, Worker, WorkerId};

use crate::bindings::events;
use crate::budget::CallBudget;
use crate::fault::Failure;
use crate::guest::DecisionData;
use crate::instance::Instance;
use crate::policy::InstanceMaker;
use crate::settings::PolicySettings;
use crate::subscription::EventSubscription;

/// CPU time of a batch of events or a timer call, as a multiple of a decision's: no request waits for it.
const MORE_TIME: u32 = 10;
/// Minimum of that CPU time.
const LEAST_TIME: Duration = Duration::from_millis(10);
/// Limit of its real time.
const WALL: Duration = Duration::from_secs(2);
/// Bounds of the time between two timer calls, in milliseconds.
const PAUSE_MS: (u32, u32) = (100, 3_600_000);

/// Optional calls that a policy exports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OptionalCalls {
    /// Subscription, if it exports `events`.
    pub(crate) subscription: Option<EventSubscription>,
    /// The policy exports `tick`.
    pub(crate) ticks: bool,
}

impl OptionalCalls {
    pub(crate) fn are_none(&self) -> bool {
        self.subscription.is_none() && !self.ticks
    }
}

/// Event listener of one version of a policy.
pub(crate) struct ListenerInstance {
    pub(crate) name: Arc<str>,
    pub(crate) maker: Arc<InstanceMaker>,
    pub(crate) optional_calls: OptionalCalls,
    pub(crate) budget: CallBudget,
    /// `None` before the first call, after a fault, and while the circuit is open.
    instance: Mutex<Option<Box<Instance>>>,
}

impl ListenerInstance {
    pub(crate) fn new(
        name: Arc<str>,
        maker: Arc<InstanceMaker>,
        optional_calls: OptionalCalls,
        settings: &PolicySettings,
    ) -> Self {
        Self {
            name,
            maker,
            optional_calls,
            budget: budget(settings),
            instance: Mutex::default(),
        }
    }

    /// Calls the instance, or a new one. After a failure it is dropped, because it cannot be entered again.
    fn call<T>(&self, act: impl FnOnce(&mut Instance) -> Result<T, Failure>) -> Result<T, PolicyFault> {
        let mut place = self.instance();
        let called = match place.take() {
            Some(warm) => Ok(warm),
            None => self.fresh().map(Box::new),
        };
        let called = called.and_then(|mut instance| {
            let answer = act(&mut instance)?;
            *place = Some(instance);
            Ok(answer)
        });
        called.map_err(|failure| PolicyFault {
            policy: Arc::clone(&self.name),
            kind: failure.kind,
            detail: failure.detail,
        })
    }

    fn fresh(&self) -> Result<Instance, Failure> {
        let mut instance = self.maker.make()?;
        let names = self
            .optional_calls
            .subscription
            .as_ref()
            .map(|wanted| &wanted.names);
        if instance.subscribe()?.as_ref() != names {
            return Err(Failure::no_instance(
                "a fresh instance subscribes to other events",
            ));
        }
        Ok(instance)
    }

    fn instance(&self) -> MutexGuard<'_, Option<Box<Instance>>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for ListenerInstance {
    fn policy(&self) -> &str {
        &self.name
    }

    fn kinds(&self) -> EventKinds {
        let wanted = self.optional_calls.subscription.as_ref();
        wanted.map_or(EventKinds::NONE, EventSubscription::kinds)
    }

    fn ticks(&self) -> bool {
        self.optional_calls.ticks
    }

    fn handle(&self, batch: &[Event], now_us: u64) -> Result<(), PolicyFault> {
        let Some(subscription) = &self.optional_calls.subscription else {
            return Ok(());
        };
        let delivered: Vec<_> = batch
            .iter()
            .filter_map(|event| delivered(event, subscription))
            .collect();
        let workers = batch.iter().map(|event| &event.worker);
        let workers: Arc<dyn DecisionQueries> = Arc::new(BatchWorkers::of(workers));
        let about = DecisionData::without_request(workers, now_us);
        self.call(|instance| instance.handle(&delivered, about, self.budget))
    }

    fn tick(&self, now_us: u64) -> Result<Duration, PolicyFault> {
        let about = DecisionData::without_request(Arc::new(NoAnswers), now_us);
        let (least, most) = PAUSE_MS;
        let pause = self.call(|instance| instance.tick(about, self.budget))?;
        Ok(Duration::from_millis(pause.clamp(least, most).into()))
    }

    fn rest(&self) {
        *self.instance() = None;
    }
}

impl fmt::Debug for ListenerInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("policy", &self.name)
            .field("wishes", &self.optional_calls)
            .finish_non_exhaustive()
    }
}

/// Returns the budget of one call.
pub(crate) fn budget(settings: &PolicySettings) -> CallBudget {
    CallBudget {
        cpu: LEAST_TIME.max(settings.cpu_budget * MORE_TIME),
        wall: WALL,
    }
}

fn delivered(event: &Event, subscription: &EventSubscription) -> Option<events::Event> {
    Some(events::Event {
        kind: subscription.position(event.kind)?,
        at_us: event.at_us,
        seq: event.seq,
        session: event.session,
        worker: event.worker.id().0,
        number: event.number,
    })
}

/// The workers of a batch; no others are known.
pub(crate) struct BatchWorkers(BTreeMap<WorkerId, Arc<Worker>>);

impl BatchWorkers {
    pub(crate) fn of<'a>(workers: impl Iterator<Item = &'a Arc<Worker>>) -> Self {
        let mut known = BTreeMap::new();
        for worker in workers {
            // The latest event of a worker has its current state.
            known.insert(worker.id(), Arc::clone(worker));
        }
        Self(known)
    }
}

impl DecisionQueries for BatchWorkers {
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.0.get(&id).cloned()
    }
}
