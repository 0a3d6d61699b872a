//! Commands: a name, then its data.

use super::fault::Fault;

/// Longest ping context that is answered; RFC 37 allows no more.
const MAX_CONTEXT: usize = 16;

/// A command of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerCommand<'a> {
    Ready(&'a [u8]),
    Welcome(&'a [u8]),
    Error,
    /// Ping, with the context to return.
    Ping(&'a [u8]),
    /// Any other command; a subscriber ignores it.
    Other,
}

impl<'a> PeerCommand<'a> {
    /// Parses the body of a command frame.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (&length, rest) = body.split_first().ok_or(Fault::Malformed)?;
        let (name, data) = rest
            .split_at_checked(usize::from(length))
            .ok_or(Fault::Malformed)?;
        Ok(match name {
            b"READY" => Self::Ready(data),
            b"WELCOME" => Self::Welcome(data),
            b"ERROR" => Self::Error,
            b"PING" => {
                // The first two bytes are the time that the peer waits for traffic.
                let context = data.get(2..).ok_or(Fault::Malformed)?;
                if context.len() > MAX_CONTEXT {
                    return Err(Fault::Malformed);
                }
                Self::Ping(context)
            }
            _ => Self::Other,
        })
    }
}

/// Returns the body of a command.
pub(super) fn command(name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(1 + name.len() + data.len());
    // Names are constants of this crate.
    body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    body.extend(name.as_bytes());
    body.extend(data);
    body
}

/// Returns the body of a ping. Its time to live is zero: the publisher detects dead subscribers itself.
pub(super) fn ping() -> Vec<u8> {
    command("PING", &[0, 0])
}

/// Returns properties of a connection, as in a READY command.
pub(super) fn metadata(properties: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in properties {
        out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.extend(name.as_bytes());
        out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(*value);
    }
    out
}

/// Returns the value of a property, or `None` if it is not listed. Names are case-insensitive.
///
/// # Errors
/// Returns an error if the list is malformed.
pub(super) fn property<'a>(mut list: &'a [u8], wanted: &str) -> Result<Option<&'a [u8]>, Fault> {
    let mut found = None;
    while let Some((&length, rest)) = list.split_first() {
        let parts = rest.split_at_checked(usize::from(length));
        let (name, rest) = parts.ok_or(Fault::Malformed)?;
        let (length, rest) = rest.split_first_chunk().ok_or(Fault::Malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Fault::Malformed)?;
        let (value, rest) = rest.split_at_checked(length).ok_or(Fault::Malformed)?;
        if name.eq_ignore_ascii_case(wanted.as_bytes()) {
            found = Some(value);
        }
        list = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_whatever_their_case() {
        let list = metadata(&[("Identity", b""), ("socket-type", b"PUB")]);
        assert_eq!(property(&list, "Socket-Type"), Ok(Some(&b"PUB"[..])));
        assert_eq!(property(&list, "Resource"), Ok(None));
        assert_eq!(
            property(&list[..list.len() - 1], "Resource"),
            Err(Fault::Malformed)
        );
    }

    #[test]
    fn a_ping_is_read_with_its_context_within_its_bound() {
        let body = command("PING", b"\x00\x64context");
        assert_eq!(PeerCommand::parse(&body), Ok(PeerCommand::Ping(b"context")));
        let long = command("PING", &[0; 2 + MAX_CONTEXT + 1]);
        assert_eq!(PeerCommand::parse(&long), Err(Fault::Malformed));
        assert_eq!(PeerCommand::parse(&command("PING", &[0])), Err(Fault::Malformed));
    }

    #[test]
    fn a_name_longer_than_its_command_is_malformed() {
        assert_eq!(PeerCommand::parse(b"\x09READY"), Err(Fault::Malformed));
        assert_eq!(PeerCommand::parse(b""), Err(Fault::Malformed));
        assert_eq!(PeerCommand::parse(b"\x03JOB"), Ok(PeerCommand::Other));
    }
}
