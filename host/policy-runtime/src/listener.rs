//! The part of a policy that is told events and that ticks: one instance of its own, with a budget of its own, so that what goes
//! wrong in it costs no decision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{DecisionQueries, Event, EventKinds, EventListener, NoAnswers, PolicyFault, Worker, WorkerId};

use crate::bindings::events;
use crate::budget::Budget;
use crate::fault::Failure;
use crate::guest::Decision;
use crate::instance::Instance;
use crate::policy::InstanceMaker;
use crate::settings::PolicySettings;
use crate::subscription::Subscription;

/// How many times the CPU time of a decision a batch of events or a tick may use: no request waits for it.
const MORE_TIME: u32 = 10;
/// The least of it.
const LEAST_TIME: Duration = Duration::from_millis(10);
/// Real time that it may take.
const WALL: Duration = Duration::from_secs(2);
/// Bounds of the time between two ticks, in milliseconds.
const PAUSE_MS: (u32, u32) = (100, 3_600_000);

/// What a policy wants besides decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Where it exports `events`.
    pub(crate) subscription: Option<Subscription>,
    /// Whether it exports `tick`.
    pub(crate) ticks: bool,
}

impl Wishes {
    pub(crate) fn are_none(&self) -> bool {
        self.subscription.is_none() && !self.ticks
    }
}

/// Is told what happens, for one version of a policy.
pub(crate) struct Listener {
    pub(crate) name: Arc<str>,
    pub(crate) maker: Arc<InstanceMaker>,
    pub(crate) wishes: Wishes,
    pub(crate) budget: Budget,
    /// None before the first call, after a fault, and while it rests.
    instance: Mutex<Option<Box<Instance>>>,
}

impl Listener {
    pub(crate) fn new(
        name: Arc<str>,
        maker: Arc<InstanceMaker>,
        wishes: Wishes,
        settings: &PolicySettings,
    ) -> Self {
        Self {
            name,
            maker,
            wishes,
            budget: budget(settings),
            instance: Mutex::default(),
        }
    }

    /// Calls the instance, or a fresh one; after a failure there is none, since it cannot be entered again.
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
        let names = self.wishes.subscription.as_ref().map(|wanted| &wanted.names);
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

impl EventListener for Listener {
    fn policy(&self) -> &str {
        &self.name
    }

    fn kinds(&self) -> EventKinds {
        let wanted = self.wishes.subscription.as_ref();
        wanted.map_or(EventKinds::NONE, Subscription::kinds)
    }

    fn ticks(&self) -> bool {
        self.wishes.ticks
    }

    fn handle(&self, batch: &[Event], now_us: u64) -> Result<(), PolicyFault> {
        let Some(subscription) = &self.wishes.subscription else {
            return Ok(());
        };
        let told: Vec<_> = batch
            .iter()
            .filter_map(|event| told(event, subscription))
            .collect();
        let workers = batch.iter().map(|event| &event.worker);
        let workers: Arc<dyn DecisionQueries> = Arc::new(BatchWorkers::of(workers));
        let about = Decision::without_request(workers, now_us);
        self.call(|instance| instance.handle(&told, about, self.budget))
    }

    fn tick(&self, now_us: u64) -> Result<Duration, PolicyFault> {
        let about = Decision::without_request(Arc::new(NoAnswers), now_us);
        let (least, most) = PAUSE_MS;
        let pause = self.call(|instance| instance.tick(about, self.budget))?;
        Ok(Duration::from_millis(pause.clamp(least, most).into()))
    }

    fn rest(&self) {
        *self.instance() = None;
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("policy", &self.name)
            .field("wishes", &self.wishes)
            .finish_non_exhaustive()
    }
}

/// What one call may use.
pub(crate) fn budget(settings: &PolicySettings) -> Budget {
    Budget {
        cpu: LEAST_TIME.max(settings.cpu_budget * MORE_TIME),
        wall: WALL,
    }
}

fn told(event: &Event, subscription: &Subscription) -> Option<events::Event> {
    Some(events::Event {
        kind: subscription.position(event.kind)?,
        at_us: event.at_us,
        seq: event.seq,
        session: event.session,
        worker: event.worker.id().0,
        number: event.number,
    })
}

/// Knows the workers that a batch is about, and nothing else.
pub(crate) struct BatchWorkers(BTreeMap<WorkerId, Arc<Worker>>);

impl BatchWorkers {
    pub(crate) fn of<'a>(workers: impl Iterator<Item = &'a Arc<Worker>>) -> Self {
        let mut known = BTreeMap::new();
        for worker in workers {
            // What was told last of a worker is how it is now.
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
