//! The waiting requests of a pool, and which of them goes next.
//!
//! The most important class first; within a class the tenant that was served least; within that what [`Lane`] says. Nobody
//! overtakes the first in order for being smaller, so whoever is first is let in as soon as there is room for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::aims::Aims;
use super::lane::{Lane, Order};
use super::release::Release;
use super::tenants::Tenants;
use crate::id::WorkerId;

/// What is known of a request that waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// How important it is; below 0, it may be shed for another.
    pub class: i32,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// What its tenant is charged: weighted tokens over the tenant's weight.
    pub share: f64,
    /// What it takes of the budget of tokens.
    pub tokens: u64,
    /// What there is to do before its first token, in tokens: the shorter goes first.
    pub work: u64,
    /// The time that takes; 0 while unknown.
    pub runs_us: u64,
    /// It has to leave the queue by then to be of use.
    pub start_by_us: u64,
    /// How a policy held it; none, where it waits for the budget.
    pub held: Option<Held>,
}

/// A policy was asked already and wants it held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// Ascending: the least goes first.
    pub order: f64,
    /// How many releases there were when it was asked: it may be asked again for a later one. None: it is to be asked again as soon
    /// as there is room.
    pub asked_at: Option<u64>,
    /// The worker it waits for, and what it is there, in the policy's unit.
    pub waits_for: Option<(WorkerId, u32)>,
}

impl Waiting {
    fn waits_for(&self) -> Option<(WorkerId, u32)> {
        self.held?.waits_for
    }

    /// The worker it waits for in particular.
    #[must_use]
    pub fn aim(&self) -> Option<WorkerId> {
        Some(self.waits_for()?.0)
    }
}

/// How many wait: the sheddable (class below 0), those of class 0, and the preferred.
pub type ClassCounts = [usize; 3];

/// The waiting requests of a pool. Each has a number of the caller's, later ones higher, and what it is to be told with.
#[derive(Debug)]
pub struct WaitingLine<W> {
    entries: HashMap<u64, (Waiting, W)>,
    classes: BTreeMap<Reverse<i32>, Class>,
    tenants: Tenants,
    aims: Aims,
}

#[derive(Debug, Default)]
struct Class {
    numbers: BTreeSet<u64>,
    lanes: HashMap<Arc<str>, Placed>,
    /// Who was served least comes first; of two alike, the one who waits longer.
    by_level: BTreeSet<(Place, Arc<str>)>,
}

/// What its tenant was served, and the number with which the lane began.
type Place = (Order, u64);

/// A lane, and where it stands among the others.
#[derive(Debug)]
struct Placed {
    lane: Lane,
    place: Place,
}

impl Class {
    /// The tenant's lane; whether it is a new one.
    fn lane(&mut self, tenant: &Arc<str>, level: f64, number: u64) -> (&mut Lane, bool) {
        let is_new = !self.lanes.contains_key(tenant);
        let place = (Order::of(level), number);
        if is_new {
            self.by_level.insert((place, Arc::clone(tenant)));
        }
        let new = || Placed {
            lane: Lane::default(),
            place,
        };
        let placed = self.lanes.entry(Arc::clone(tenant)).or_insert_with(new);
        (&mut placed.lane, is_new)
    }

    /// The tenant, if it has a lane, was served so much.
    fn move_to(&mut self, tenant: &Arc<str>, level: f64) {
        if let Some(placed) = self.lanes.get_mut(tenant) {
            let before = (placed.place, Arc::clone(tenant));
            placed.place.0 = Order::of(level);
            if placed.place != before.0 {
                self.by_level.remove(&before);
                self.by_level.insert((placed.place, before.1));
            }
        }
    }
}

impl<W> Default for WaitingLine<W> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            classes: BTreeMap::new(),
            tenants: Tenants::default(),
            aims: Aims::default(),
        }
    }
}

impl<W> WaitingLine<W> {
    /// One goes in without having waited; `share` is its weighted tokens over its tenant's weight.
    pub fn pass(&mut self, tenant: &Arc<str>, share: f64) {
        let tenant = self.tenants.pass(tenant, share);
        self.has_moved(&tenant);
    }

    /// A request turned out to be so much more, or less, than its tenant was charged.
    pub fn correct(&mut self, tenant: &Arc<str>, share: f64) {
        self.tenants.correct(tenant, share);
        self.has_moved(tenant);
    }

    /// What the tenant was served has changed.
    fn has_moved(&mut self, tenant: &Arc<str>) {
        let level = self.tenants.level(tenant);
        for class in self.classes.values_mut() {
            class.move_to(tenant, level);
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many wait by kind of class.
    #[must_use]
    pub fn counts(&self) -> ClassCounts {
        let mut counts = ClassCounts::default();
        for (Reverse(class), of_class) in &self.classes {
            counts[(class.signum() + 1).unsigned_abs() as usize] += of_class.numbers.len();
        }
        counts
    }

    /// How many wait that a newcomer of that class does not go before by its class alone.
    #[must_use]
    pub fn ahead_of(&self, class: i32) -> usize {
        let ahead = self.classes.range(..=Reverse(class));
        ahead.map(|(_, of_class)| of_class.numbers.len()).sum()
    }

    /// One more waits. A number that waits already is replaced.
    pub fn insert(&mut self, number: u64, mut one: Waiting, tell: W) {
        self.remove(number);
        one.tenant = self.tenants.name(&one.tenant);
        let class = self.classes.entry(Reverse(one.class)).or_default();
        class.numbers.insert(number);
        let (lane, is_new) = class.lane(&one.tenant, self.tenants.level(&one.tenant), number);
        lane.insert(number, &one);
        if let Some((worker, work)) = one.waits_for() {
            self.aims.insert(worker, number, work);
        }
        if is_new {
            self.tenants.lift(&one.tenant);
            self.has_moved(&one.tenant);
        }
        self.entries.insert(number, (one, tell));
    }

    /// It waits no more; what it is to be told with. Its tenant is not charged.
    pub fn remove(&mut self, number: u64) -> Option<(Waiting, W)> {
        let (one, tell) = self.entries.remove(&number)?;
        if let Some((worker, _)) = one.waits_for() {
            self.aims.remove(worker, number);
        }
        if let Some(class) = self.classes.get_mut(&Reverse(one.class)) {
            class.numbers.remove(&number);
            if let Some(placed) = class.lanes.get_mut(&one.tenant) {
                placed.lane.remove(number, &one);
                if placed.lane.is_empty() {
                    class.by_level.remove(&(placed.place, Arc::clone(&one.tenant)));
                    class.lanes.remove(&one.tenant);
                }
            }
            if class.numbers.is_empty() {
                self.classes.remove(&Reverse(one.class));
            }
        }
        Some((one, tell))
    }

    /// It is let in: it waits no more, and its tenant is charged.
    pub fn serve(&mut self, number: u64) -> Option<(Waiting, W)> {
        let (one, tell) = self.remove(number)?;
        self.tenants.serve(&one.tenant, one.share);
        self.has_moved(&one.tenant);
        Some((one, tell))
    }

    /// One that a policy held is to be asked again as soon as there is room.
    pub fn make_due(&mut self, number: u64) {
        if let Some((mut one, tell)) = self.remove(number) {
            if let Some(held) = &mut one.held {
                held.asked_at = None;
            }
            self.insert(number, one, tell);
        }
    }

    /// Who goes next at that time, where one leaves the queue every `step_us` (none: unknown) and there were so many releases.
    /// `release`: it may be one that a policy holds and that is asked for that, at most once after each.
    pub fn first(
        &mut self,
        now_us: u64,
        step_us: Option<u64>,
        releases: u64,
        release: Option<&Release>,
    ) -> Option<(u64, &Waiting)> {
        // Looked at in vain are lanes of which all are held and were asked, or are not worth asking.
        let first_of = |class: &mut Class| {
            let Class { lanes, by_level, .. } = class;
            let first = |tenant| {
                lanes
                    .get_mut(tenant)?
                    .lane
                    .first(now_us, step_us, releases, release)
            };
            by_level.iter().map(|(_, tenant)| tenant).find_map(first)
        };
        let number = self.classes.values_mut().find_map(first_of)?;
        let (one, _) = self.entries.get(&number)?;
        Some((number, one))
    }

    /// For each worker, how many wait for it, and the work of those among them that are at most so much there: two numbers a worker.
    #[must_use]
    pub fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        self.aims.ahead(workers, most)
    }

    /// Who is to make room for one of that class: of the least important that may be shed, the last that came.
    #[must_use]
    pub fn victim(&self, class: i32) -> Option<u64> {
        let (Reverse(least), of_class) = self.classes.last_key_value()?;
        let may_be_shed = *least < 0 && *least < class;
        of_class.numbers.last().copied().filter(|_| may_be_shed)
    }
}
