//! Session: the state machine of one connection, from received bytes to events and bytes to send.
//!
//! The caller reserves memory for each frame of a message before its body is read. [`SessionEvent::Reserve`] contains
//! the number of bytes; the body is read once the session is advanced again.

use super::command::{PeerCommand, command, ping};
use super::curve::{CurveKeys, CurveSecrets, MESSAGE_OVERHEAD};
use super::fault::Fault;
use super::frames::{FRAME_COST, FrameHeader, MAX_COMMAND, MAX_FRAMES, write_frame};
use super::greeting::{GREETING, check_greeting, greeting};
pub(crate) use super::handshake::SocketRole;
use super::handshake::{HandshakeProgress, SecurityMechanism, begin, proceed};
use super::limits::FeedLimits;

/// Flags inside a CURVE box.
const BOXED_MORE: u8 = 1;
const BOXED_COMMAND: u8 = 2;

/// Event of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// The handshake is complete.
    Ready,
    /// A frame of this size begins, including its overhead. It is read once the session is advanced again.
    Reserve(usize),
    /// A message of another topic ended; its reserved memory is free again.
    Skipped,
    /// A message is complete.
    Message(Vec<Vec<u8>>),
}

enum SessionPhase {
    Greeting,
    Header,
    Body(FrameHeader),
}

/// One connection to a publisher.
pub(crate) struct ZmtpSession {
    role: SocketRole,
    limits: FeedLimits,
    mechanism: SecurityMechanism,
    phase: SessionPhase,
    is_ready: bool,
    /// The greeting or header being read.
    head: Vec<u8>,
    /// The frame being read.
    body: Vec<u8>,
    message: PartialMessage,
    out: Vec<u8>,
}

/// The message being read.
#[derive(Default)]
struct PartialMessage {
    frames: Vec<Vec<u8>>,
    bytes: usize,
}

impl ZmtpSession {
    /// Starts a connection; the greeting is ready to be sent.
    pub(crate) fn new(
        role: SocketRole,
        limits: FeedLimits,
        curve: Option<(CurveKeys, CurveSecrets)>,
    ) -> Self {
        let mechanism = SecurityMechanism::new(curve);
        let out = greeting(mechanism.name()).to_vec();
        Self {
            role,
            limits,
            mechanism,
            phase: SessionPhase::Greeting,
            is_ready: false,
            head: Vec::with_capacity(GREETING),
            body: Vec::new(),
            message: PartialMessage::default(),
            out,
        }
    }

    /// Returns `true` once the handshake is complete.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns `true` once the peer has sent its greeting: it is reachable and speaks ZMTP.
    pub(crate) fn has_greeted(&self) -> bool {
        !matches!(self.phase, SessionPhase::Greeting)
    }

    /// Returns `true` between the first and the last frame of a message.
    pub(crate) fn is_amid_message(&self) -> bool {
        !self.message.frames.is_empty()
            || !self.head.is_empty()
            || matches!(self.phase, SessionPhase::Body(_))
    }

    /// Returns the memory of the frame being read.
    #[cfg(test)]
    pub(super) fn body_capacity(&self) -> usize {
        self.body.capacity()
    }

    /// Returns the bytes to send.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// Returns an error if a box cannot be sealed.
    pub(crate) fn ping(&mut self) -> Result<(), Fault> {
        self.send_command(&ping())
    }

    /// Consumes bytes of `input` up to the next event. Returns `None` if all are consumed.
    ///
    /// # Errors
    /// The connection must be closed.
    pub(crate) fn advance(&mut self, input: &mut &[u8]) -> Result<Option<SessionEvent>, Fault> {
        loop {
            match self.phase {
                SessionPhase::Greeting => {
                    let is_whole = fill(&mut self.head, GREETING, input);
                    check_greeting(&self.head, self.mechanism.name())?;
                    if !is_whole {
                        return Ok(None);
                    }
                    self.head.clear();
                    let first = begin(&mut self.mechanism, &self.role)?;
                    write_frame(&mut self.out, true, false, &first);
                    self.phase = SessionPhase::Header;
                }
                SessionPhase::Header => {
                    let Some(header) = self.header(input)? else {
                        return Ok(None);
                    };
                    let length = self.check(header)?;
                    self.phase = SessionPhase::Body(header);
                    if self.is_part(header) {
                        return Ok(Some(SessionEvent::Reserve(length + FRAME_COST)));
                    }
                }
                SessionPhase::Body(header) => {
                    let Ok(length) = usize::try_from(header.length) else {
                        return Err(Fault::FrameTooLarge);
                    };
                    if self.body.capacity() == 0 {
                        self.body.reserve_exact(length);
                    }
                    if !fill(&mut self.body, length, input) {
                        return Ok(None);
                    }
                    self.phase = SessionPhase::Header;
                    let body = std::mem::take(&mut self.body);
                    if let Some(event) = self.frame(header, body)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    fn header(&mut self, input: &mut &[u8]) -> Result<Option<FrameHeader>, Fault> {
        loop {
            if let Some((header, _)) = FrameHeader::parse(&self.head)? {
                self.head.clear();
                return Ok(Some(header));
            }
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            self.head.push(byte);
            *input = rest;
        }
    }

    /// Returns `true` if a frame is part of a message by its header. In a box it may still be a command.
    fn is_part(&self, header: FrameHeader) -> bool {
        self.is_ready && (!header.is_command || matches!(self.mechanism, SecurityMechanism::Curve(_)))
    }

    /// Checks a frame's length against the limits before its body is read.
    fn check(&self, header: FrameHeader) -> Result<usize, Fault> {
        let length = usize::try_from(header.length).map_err(|_| Fault::FrameTooLarge)?;
        if !self.is_part(header) {
            let is_short = length <= MAX_COMMAND;
            return if is_short {
                Ok(length)
            } else {
                Err(Fault::FrameTooLarge)
            };
        }
        let overhead = match self.mechanism {
            SecurityMechanism::Null => 0,
            SecurityMechanism::Curve(_) => MESSAGE_OVERHEAD,
        };
        let payload = length.saturating_sub(overhead);
        if payload > self.limits.frame {
            return Err(Fault::FrameTooLarge);
        }
        if self.message.bytes.saturating_add(payload) > self.limits.message {
            return Err(Fault::MessageTooLarge);
        }
        if self.message.frames.len() >= MAX_FRAMES {
            return Err(Fault::TooManyFrames);
        }
        Ok(length)
    }

    /// Handles a complete frame.
    fn frame(&mut self, header: FrameHeader, mut body: Vec<u8>) -> Result<Option<SessionEvent>, Fault> {
        if !self.is_ready {
            if !header.is_command {
                return Err(Fault::Malformed);
            }
            return self.handshake(&body);
        }
        let (is_command, has_more) = match &mut self.mechanism {
            SecurityMechanism::Null => (header.is_command, header.has_more),
            SecurityMechanism::Curve(client) => {
                let flags = client.open(&mut body)?;
                (flags & BOXED_COMMAND != 0, flags & BOXED_MORE != 0)
            }
        };
        if is_command {
            return self.command(header, &body);
        }
        self.message.bytes += body.len();
        self.message.frames.push(body);
        if has_more {
            return Ok(None);
        }
        let message = std::mem::take(&mut self.message);
        Ok(Some(if self.is_wanted(&message.frames) {
            SessionEvent::Message(message.frames)
        } else {
            SessionEvent::Skipped
        }))
    }

    fn handshake(&mut self, body: &[u8]) -> Result<Option<SessionEvent>, Fault> {
        match proceed(&mut self.mechanism, &self.role, body)? {
            HandshakeProgress::Send(next) => {
                write_frame(&mut self.out, true, false, &next);
                Ok(None)
            }
            HandshakeProgress::Ready => {
                self.is_ready = true;
                self.introduce()?;
                Ok(Some(SessionEvent::Ready))
            }
        }
    }

    /// Sends the subscription or the replay request.
    fn introduce(&mut self) -> Result<(), Fault> {
        match self.role.clone() {
            // The form of ZMTP 3.0, which later peers accept.
            SocketRole::Subscriber { topic } => self.send(false, &[&[1], &topic[..]].concat()),
            SocketRole::Requester { from } => {
                self.send(true, b"")?;
                self.send(false, &from.to_be_bytes())
            }
        }
    }

    fn command(&mut self, header: FrameHeader, body: &[u8]) -> Result<Option<SessionEvent>, Fault> {
        match PeerCommand::parse(body)? {
            PeerCommand::Ping(context) => self.send_command(&command("PONG", context))?,
            PeerCommand::Error => return Err(Fault::Refused),
            PeerCommand::Ready(_) | PeerCommand::Welcome(_) | PeerCommand::Other => {}
        }
        // The reserved memory is free again, unless the box came within a message.
        let is_free = self.is_part(header) && self.message.frames.is_empty();
        Ok(is_free.then_some(SessionEvent::Skipped))
    }

    /// Returns `true` if a message belongs to the topic. Publishers filter; one that does not is filtered here.
    fn is_wanted(&self, frames: &[Vec<u8>]) -> bool {
        match &self.role {
            SocketRole::Subscriber { topic } => frames.first().is_some_and(|first| first.starts_with(topic)),
            SocketRole::Requester { .. } => true,
        }
    }

    fn send(&mut self, has_more: bool, payload: &[u8]) -> Result<(), Fault> {
        match &mut self.mechanism {
            SecurityMechanism::Null => write_frame(&mut self.out, false, has_more, payload),
            SecurityMechanism::Curve(client) => {
                let flags = if has_more { BOXED_MORE } else { 0 };
                let sealed = client.seal(flags, payload)?;
                write_frame(&mut self.out, false, false, &sealed);
            }
        }
        Ok(())
    }

    fn send_command(&mut self, body: &[u8]) -> Result<(), Fault> {
        match &mut self.mechanism {
            SecurityMechanism::Null => write_frame(&mut self.out, true, false, body),
            SecurityMechanism::Curve(client) => {
                let sealed = client.seal(BOXED_COMMAND, body)?;
                write_frame(&mut self.out, false, false, &sealed);
            }
        }
        Ok(())
    }
}

/// Moves bytes of `input` to `place` until it has `length`. Returns `true` once it has.
fn fill(place: &mut Vec<u8>, length: usize, input: &mut &[u8]) -> bool {
    let missing = length.saturating_sub(place.len());
    let (taken, rest) = input.split_at(missing.min(input.len()));
    place.extend_from_slice(taken);
    *input = rest;
    place.len() == length
}
