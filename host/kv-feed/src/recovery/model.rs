//! Model test: a publisher loses messages and connections, forgets its history, restarts and falls silent at random.
//!
//! The delivered messages are always one unbroken part of one run up to the latest live message, unless the recovery
//! reports that it is behind. Once the faults end, it reaches the publisher's last message without another one being
//! sent.

use std::collections::VecDeque;

use super::*;
use crate::seed::FeedPosition;

/// Reproducible pseudo-random numbers (a linear congruential generator with Knuth's factor).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

type NumberedMessage = (u64, Vec<u8>);

/// Answer to one request, in transit: batches, then the end.
type ReplayAnswer = VecDeque<Option<NumberedMessage>>;

struct PublisherModel {
    dice: RandomNumbers,
    now: Instant,
    recovery: FeedRecovery<Vec<u8>>,
    actions: RecoveryActions<Vec<u8>>,
    run: u64,
    history: VecDeque<NumberedMessage>,
    next: u64,
    on_the_wire: VecDeque<NumberedMessage>,
    /// A request that waits for the publisher, or its answer.
    requested: Option<u64>,
    answer: Option<ReplayAnswer>,
    received: Option<u64>,
    /// The subscription is connected; otherwise messages are lost.
    up: bool,
    /// Runs and numbers delivered since the last reset.
    applied: Vec<(u64, u64)>,
    /// A position with the messages delivered until then, as another router may know it later.
    elsewhere: Option<(FeedPosition, Vec<(u64, u64)>)>,
    /// Number of seeds.
    seeds: u64,
}

impl PublisherModel {
    fn new(seed: u64) -> Self {
        let (now, mut actions) = (Instant::now(), Vec::new());
        let recovery = FeedRecovery::new(true, FIRST_CHECK, now, &mut actions);
        let mut world = Self {
            dice: RandomNumbers(seed),
            now,
            recovery,
            actions,
            run: 0,
            history: VecDeque::new(),
            next: 0,
            on_the_wire: VecDeque::new(),
            requested: None,
            answer: None,
            received: None,
            up: false,
            applied: Vec::new(),
            elsewhere: None,
            seeds: 0,
        };
        world.act();
        world
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=29 => self.publish(),
            30..=59 => self.receive(),
            60..=64 => self.publisher_answers(),
            65..=91 => self.hear_answer(),
            92..=95 => self.wait(),
            96 => self.note_position(),
            97 => self.seed(),
            98 => match self.dice.below(4) {
                0 => self.history.truncate(0),
                1 => self.restart(),
                _ => self.drop_connection(),
            },
            _ if !self.up => self.connect(),
            _ => {}
        }
        self.act();
    }

    fn publish(&mut self) {
        let message = (self.next, format!("{}:{}", self.run, self.next).into_bytes());
        self.next += 1;
        self.history.push_back(message.clone());
        if self.up && self.dice.below(10) > 0 {
            self.on_the_wire.push_back(message);
        }
    }

    fn receive(&mut self) {
        if let Some((sequence, payload)) = self.on_the_wire.pop_front() {
            self.received = Some(sequence);
            self.recovery.live(sequence, payload, self.now, &mut self.actions);
        }
    }

    fn publisher_answers(&mut self) {
        if let Some(from) = self.requested.take() {
            let kept = self.history.iter().filter(|(sequence, _)| *sequence >= from);
            self.answer = Some(kept.cloned().map(Some).chain([None]).collect());
        }
    }

    fn hear_answer(&mut self) {
        let Some(part) = self.answer.as_mut().and_then(VecDeque::pop_front) else {
            return;
        };
        // Some are lost in transit.
        if part.is_none() || self.dice.below(20) > 0 {
            self.bring(part);
        }
    }

    fn bring(&mut self, part: Option<NumberedMessage>) {
        match part {
            Some((sequence, payload)) => {
                self.recovery
                    .replayed(sequence, payload, self.now, &mut self.actions);
            }
            None => self.recovery.replay_ended(self.now, &mut self.actions),
        }
    }

    /// Another router takes over the known state, unless it has received more.
    fn note_position(&mut self) {
        if let Some(position) = self.recovery.position()
            && self.elsewhere.as_ref().is_none_or(|(known, _)| {
                self.dice.0.is_multiple_of(2) || position.known_from <= known.known_from
            })
        {
            self.elsewhere = Some((position, self.applied.clone()));
        }
    }

    /// This router takes over the other one's state.
    fn seed(&mut self) {
        if let Some((position, applied)) = &self.elsewhere
            && self.recovery.needs_seed(position)
        {
            self.applied.clone_from(applied);
            self.recovery.seed(position, self.now, &mut self.actions);
            self.seeds += 1;
        }
    }

    fn wait(&mut self) {
        self.now += FIRST_RETRY * u32::try_from(self.dice.below(7)).expect("below 7");
        self.recovery.tick(self.now, &mut self.actions);
    }

    fn restart(&mut self) {
        self.run += 1;
        self.next = 0;
        self.history.clear();
        self.drop_connection();
    }

    /// Messages already received are processed before the connection ends.
    fn drop_connection(&mut self) {
        while !self.on_the_wire.is_empty() {
            self.receive();
            self.act();
        }
        (self.up, self.requested, self.answer) = (false, None, None);
        self.recovery.disconnected(&mut self.actions);
        self.act();
    }

    fn connect(&mut self) {
        self.up = true;
        self.received = None;
        self.recovery.connected(self.now, &mut self.actions);
    }

    /// Stops faults and publishing.
    fn settle(&mut self) {
        if !self.up {
            self.connect();
        }
        for _ in 0..40 {
            self.act();
            while !self.on_the_wire.is_empty() || self.requested.is_some() || self.answer.is_some() {
                self.receive();
                self.act();
                self.publisher_answers();
                while let Some(part) = self.answer.as_mut().and_then(VecDeque::pop_front) {
                    self.bring(part);
                    self.act();
                }
                self.answer = None;
            }
            self.now = self.recovery.deadline().map_or(self.now, |at| at.max(self.now));
            self.recovery.tick(self.now, &mut self.actions);
        }
    }

    fn act(&mut self) {
        for action in self.actions.drain(..) {
            match action {
                RecoveryAction::Apply(_, payload) => {
                    let text = String::from_utf8(payload).unwrap();
                    let (run, number) = text.split_once(':').unwrap();
                    self.applied.push((run.parse().unwrap(), number.parse().unwrap()));
                }
                RecoveryAction::Reset(_) => self.applied.clear(),
                RecoveryAction::RequestReplay(from) => (self.requested, self.answer) = (Some(from), None),
                RecoveryAction::CancelReplay => (self.requested, self.answer) = (None, None),
                RecoveryAction::CountGap | RecoveryAction::ReportUnanswered | RecoveryAction::Resubscribe => {
                }
            }
        }
    }

    #[track_caller]
    fn check(&self, place: &str) {
        let follows = |(run, number): (u64, u64), next| (run, number + 1) == next;
        let unbroken = self.applied.windows(2).all(|pair| follows(pair[0], pair[1]));
        assert!(unbroken, "{place}: {:?}", self.applied);
        let current = self.recovery.reached() && !self.recovery.is_behind();
        if let (true, Some((_, last))) = (current, self.applied.last()) {
            assert!(
                Some(*last) >= self.received,
                "{place}: {:?} is behind {:?}",
                self.applied,
                self.received
            );
        }
    }
}

#[test]
fn applied_messages_never_fall_behind_received_ones() {
    let mut seeds = 0;
    for seed in 0..1000 {
        let mut world = PublisherModel::new(seed);
        for step in 0..500 {
            world.step();
            world.check(&format!("seed {seed}, step {step}"));
        }
        world.settle();
        let last = world.history.back().map(|&(sequence, _)| (world.run, sequence));
        if last.is_some() {
            assert_eq!(world.applied.last().copied(), last, "seed {seed}");
            assert!(!world.recovery.is_behind(), "seed {seed}");
        }
        seeds += world.seeds;
    }
    assert!(
        seeds > 50,
        "{seeds} times the state of another router was taken over"
    );
}
