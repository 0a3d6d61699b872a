//! Feeds against publishers with real sockets: PUB (as XPUB, to see subscribers come) and a ROUTER for replays.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod feeds;
mod fixture;
mod healing;
mod hostile;
mod publisher;
mod raw;
mod seeding;
mod stores;
