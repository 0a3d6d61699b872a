//! The simulator against published figures, and runs as a whole.

mod native;
mod published;
mod replay;
mod runs;
