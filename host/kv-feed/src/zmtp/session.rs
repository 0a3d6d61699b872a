//! One connection as a state machine: bytes of the peer in, events and bytes to send out.
//!
//! The caller grants memory for each frame of a message before its body is read: [`Event::Reserve`] names the bytes, and
//! nothing of the body is taken until the session is advanced again.

use super::command::{Command, command, ping};
use super::curve::{CurveKeys, CurveSecrets, MESSAGE_OVERHEAD};
use super::fault::Fault;
use super::frames::{FRAME_COST, FrameHeader, MAX_COMMAND, MAX_FRAMES, write_frame};
use super::greeting::{GREETING, check_greeting, greeting};
pub(crate) use super::handshake::SocketRole;
use super::handshake::{Mechanism, Progress, begin, proceed};
use super::limits::FeedLimits;

/// Flags inside a CURVE box.
const BOXED_MORE: u8 = 1;
const BOXED_COMMAND: u8 = 2;

/// What the bytes of a peer amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The handshake is done.
    Ready,
    /// A frame of so many bytes begins, its cost beside the body included. It is read once the session is advanced again.
    Reserve(usize),
    /// A message that does not belong to the topic ended; what was reserved for it is free again.
    Skipped,
    /// A message is complete.
    Message(Vec<Vec<u8>>),
}

enum Phase {
    Greeting,
    Header,
    Body(FrameHeader),
}

/// One connection to a publisher.
pub(crate) struct Session {
    role: SocketRole,
    limits: FeedLimits,
    mechanism: Mechanism,
    phase: Phase,
    is_ready: bool,
    /// The greeting or the header that is being read.
    head: Vec<u8>,
    /// The frame that is being read.
    body: Vec<u8>,
    message: Message,
    out: Vec<u8>,
}

/// The message that is being read.
#[derive(Default)]
struct Message {
    frames: Vec<Vec<u8>>,
    bytes: usize,
}

impl Session {
    /// Starts a connection; the greeting is ready to be sent.
    pub(crate) fn new(
        role: SocketRole,
        limits: FeedLimits,
        curve: Option<(CurveKeys, CurveSecrets)>,
    ) -> Self {
        let mechanism = Mechanism::new(curve);
        let out = greeting(mechanism.name()).to_vec();
        Self {
            role,
            limits,
            mechanism,
            phase: Phase::Greeting,
            is_ready: false,
            head: Vec::with_capacity(GREETING),
            body: Vec::new(),
            message: Message::default(),
            out,
        }
    }

    /// Whether the handshake is done.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the peer has sent its greeting: it is there, and speaks ZMTP.
    pub(crate) fn has_greeted(&self) -> bool {
        !matches!(self.phase, Phase::Greeting)
    }

    /// Whether a message was begun and is not complete.
    pub(crate) fn is_amid_message(&self) -> bool {
        !self.message.frames.is_empty() || !self.head.is_empty() || matches!(self.phase, Phase::Body(_))
    }

    /// Memory taken for the frame that is being read.
    #[cfg(test)]
    pub(super) fn body_capacity(&self) -> usize {
        self.body.capacity()
    }

    /// Takes the bytes to send.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Asks the peer for a sign of life.
    ///
    /// # Errors
    /// Where a box cannot be made.
    pub(crate) fn ping(&mut self) -> Result<(), Fault> {
        self.send_command(&ping())
    }

    /// Takes bytes from the front of `input` up to the next event; none where they are used up.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub(crate) fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Fault> {
        loop {
            match self.phase {
                Phase::Greeting => {
                    let is_whole = fill(&mut self.head, GREETING, input);
                    check_greeting(&self.head, self.mechanism.name())?;
                    if !is_whole {
                        return Ok(None);
                    }
                    self.head.clear();
                    let first = begin(&mut self.mechanism, &self.role)?;
                    write_frame(&mut self.out, true, false, &first);
                    self.phase = Phase::Header;
                }
                Phase::Header => {
                    let Some(header) = self.header(input)? else {
                        return Ok(None);
                    };
                    let length = self.check(header)?;
                    self.phase = Phase::Body(header);
                    if self.is_part(header) {
                        return Ok(Some(Event::Reserve(length + FRAME_COST)));
                    }
                }
                Phase::Body(header) => {
                    let Ok(length) = usize::try_from(header.length) else {
                        return Err(Fault::FrameTooLarge);
                    };
                    if self.body.capacity() == 0 {
                        self.body.reserve_exact(length);
                    }
                    if !fill(&mut self.body, length, input) {
                        return Ok(None);
                    }
                    self.phase = Phase::Header;
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

    /// Whether a frame is part of a message, as far as its header says. In a box it may still be a command.
    fn is_part(&self, header: FrameHeader) -> bool {
        self.is_ready && (!header.is_command || matches!(self.mechanism, Mechanism::Curve(_)))
    }

    /// Checks a frame's length against the limits before any of its body is read.
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
            Mechanism::Null => 0,
            Mechanism::Curve(_) => MESSAGE_OVERHEAD,
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

    /// Takes a frame whose body is complete.
    fn frame(&mut self, header: FrameHeader, mut body: Vec<u8>) -> Result<Option<Event>, Fault> {
        if !self.is_ready {
            if !header.is_command {
                return Err(Fault::Malformed);
            }
            return self.handshake(&body);
        }
        let (is_command, has_more) = match &mut self.mechanism {
            Mechanism::Null => (header.is_command, header.has_more),
            Mechanism::Curve(client) => {
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
            Event::Message(message.frames)
        } else {
            Event::Skipped
        }))
    }

    fn handshake(&mut self, body: &[u8]) -> Result<Option<Event>, Fault> {
        match proceed(&mut self.mechanism, &self.role, body)? {
            Progress::Send(next) => {
                write_frame(&mut self.out, true, false, &next);
                Ok(None)
            }
            Progress::Ready => {
                self.is_ready = true;
                self.introduce()?;
                Ok(Some(Event::Ready))
            }
        }
    }

    /// Sends what the connection is for.
    fn introduce(&mut self) -> Result<(), Fault> {
        match self.role.clone() {
            // The form of ZMTP 3.0, which later peers take too.
            SocketRole::Subscriber { topic } => self.send(false, &[&[1], &topic[..]].concat()),
            SocketRole::Requester { from } => {
                self.send(true, b"")?;
                self.send(false, &from.to_be_bytes())
            }
        }
    }

    fn command(&mut self, header: FrameHeader, body: &[u8]) -> Result<Option<Event>, Fault> {
        match Command::parse(body)? {
            Command::Ping(context) => self.send_command(&command("PONG", context))?,
            Command::Error => return Err(Fault::Refused),
            Command::Ready(_) | Command::Welcome(_) | Command::Other => {}
        }
        // What was reserved for it in a box is free again, unless it came amid a message.
        let is_free = self.is_part(header) && self.message.frames.is_empty();
        Ok(is_free.then_some(Event::Skipped))
    }

    /// Whether a message belongs to the topic. Publishers leave out the others; one that does not is not followed in them.
    fn is_wanted(&self, frames: &[Vec<u8>]) -> bool {
        match &self.role {
            SocketRole::Subscriber { topic } => frames.first().is_some_and(|first| first.starts_with(topic)),
            SocketRole::Requester { .. } => true,
        }
    }

    fn send(&mut self, has_more: bool, payload: &[u8]) -> Result<(), Fault> {
        match &mut self.mechanism {
            Mechanism::Null => write_frame(&mut self.out, false, has_more, payload),
            Mechanism::Curve(client) => {
                let flags = if has_more { BOXED_MORE } else { 0 };
                let sealed = client.seal(flags, payload)?;
                write_frame(&mut self.out, false, false, &sealed);
            }
        }
        Ok(())
    }

    fn send_command(&mut self, body: &[u8]) -> Result<(), Fault> {
        match &mut self.mechanism {
            Mechanism::Null => write_frame(&mut self.out, true, false, body),
            Mechanism::Curve(client) => {
                let sealed = client.seal(BOXED_COMMAND, body)?;
                write_frame(&mut self.out, false, false, &sealed);
            }
        }
        Ok(())
    }
}

/// Moves bytes from the front of `input` until `place` has `length`; returns whether it has.
fn fill(place: &mut Vec<u8>, length: usize, input: &mut &[u8]) -> bool {
    let missing = length.saturating_sub(place.len());
    let (taken, rest) = input.split_at(missing.min(input.len()));
    place.extend_from_slice(taken);
    *input = rest;
    place.len() == length
}
