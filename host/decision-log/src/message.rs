//! Messages to the writer thread.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::access::AccessLine;
use crate::shadow_line::ShadowLine;
use crate::trace::{Record, Trace};

/// Message to the writer thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A policy call.
    Call(Arc<Trace>, Arc<Record>),
    /// The outcome of a request.
    Outcome(Arc<Trace>),
    /// A shadow's decision.
    Shadow(Box<ShadowLine>),
    /// The end of a request.
    Access(Box<AccessLine>),
    /// The configured file changed.
    TargetChanged,
    /// Flush everything and confirm.
    Close(SyncSender<()>),
}
