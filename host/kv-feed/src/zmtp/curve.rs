//! CURVE client (RFC 26): the handshake's boxes, and those around each frame.
//!
//! The boxes are NaCl's `crypto_box` (X25519, XSalsa20, Poly1305), from the crate `crypto_box`.

use std::fmt;
use std::sync::Arc;

use crypto_box::aead::AeadInPlace;
use crypto_box::{Nonce, PublicKey, SalsaBox, SecretKey, Tag};

use super::fault::Fault;

const KEY: usize = 32;
const TAG: usize = 16;
const COOKIE: usize = 96;
/// Length of `WELCOME`'s data: a nonce and a box of a key and the cookie.
const WELCOME: usize = 16 + TAG + KEY + COOKIE;
/// Bytes of `MESSAGE` before a payload: name, nonce, tag and flags.
pub(super) const MESSAGE_OVERHEAD: usize = MESSAGE.len() + 8 + TAG + 1;
const MESSAGE: &[u8] = b"\x07MESSAGE";

/// Keys of one connection: the publisher's public key, and our own key pair.
#[derive(Clone)]
pub struct CurveKeys {
    server: PublicKey,
    client: Arc<SecretKey>,
}

impl CurveKeys {
    /// Creates the keys from the publisher's public key and our secret key.
    #[must_use]
    pub fn new(server_public: [u8; KEY], client_secret: [u8; KEY]) -> Self {
        Self {
            server: PublicKey::from(server_public),
            client: Arc::new(SecretKey::from(client_secret)),
        }
    }

    /// Returns our public key, which the publisher may need.
    #[must_use]
    pub fn client_public(&self) -> [u8; KEY] {
        *self.client.public_key().as_bytes()
    }
}

impl PartialEq for CurveKeys {
    fn eq(&self, other: &Self) -> bool {
        self.server == other.server && self.client.public_key() == other.client.public_key()
    }
}

impl Eq for CurveKeys {}

impl fmt::Debug for CurveKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Public keys only. The beginning distinguishes two.
        let client = self.client.public_key();
        write!(f, "CurveKeys({:02x?}, ..)", &client.as_bytes()[..4])
    }
}

/// Random bytes of one connection.
pub(crate) struct CurveSecrets {
    /// The connection's own secret key.
    pub(super) short: [u8; KEY],
    /// Part of the vouch's nonce.
    pub(super) vouch: [u8; 16],
}

impl CurveSecrets {
    /// Draws fresh bytes from the system.
    ///
    /// # Errors
    /// Returns an error if the system has none.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let (mut short, mut vouch) = ([0; KEY], [0; 16]);
        getrandom::fill(&mut short)?;
        getrandom::fill(&mut vouch)?;
        Ok(Self { short, vouch })
    }
}

/// Client side of one connection.
pub(super) struct CurveClient {
    keys: CurveKeys,
    short: SecretKey,
    vouch: [u8; 16],
    /// The session's box, once the server's short-term key is known.
    session: Option<SalsaBox>,
    /// Our next nonce.
    next: u64,
    /// The peer's latest nonce.
    seen: u64,
}

impl CurveClient {
    pub(super) fn new(keys: CurveKeys, secrets: CurveSecrets) -> Self {
        Self {
            keys,
            short: SecretKey::from(secrets.short),
            vouch: secrets.vouch,
            session: None,
            next: 1,
            seen: 0,
        }
    }

    fn next_nonce(&mut self) -> [u8; 8] {
        let nonce = self.next;
        self.next += 1;
        nonce.to_be_bytes()
    }

    /// Returns the body of the HELLO command.
    pub(super) fn hello(&mut self) -> Result<Vec<u8>, Fault> {
        let nonce = self.next_nonce();
        let sealed = seal(
            &SalsaBox::new(&self.keys.server, &self.short),
            &long_nonce(b"CurveZMQHELLO---", &nonce),
            &[&[0; 64][..]],
        )?;
        let short = self.short.public_key();
        let mut body = b"\x05HELLO\x01\x00".to_vec();
        // Padding, so that the answer is not longer than this.
        body.extend([0; 72]);
        body.extend(short.as_bytes());
        body.extend(nonce);
        body.extend(sealed);
        Ok(body)
    }

    /// Opens the data of the WELCOME command and returns the body of the INITIATE command.
    pub(super) fn initiate(&mut self, welcome: &[u8], metadata: &[u8]) -> Result<Vec<u8>, Fault> {
        let (nonce, sealed) = welcome
            .split_first_chunk::<16>()
            .filter(|_| welcome.len() == WELCOME)
            .ok_or(Fault::Malformed)?;
        let nonce = long_nonce(b"WELCOME-", nonce);
        let opened = open(&SalsaBox::new(&self.keys.server, &self.short), &nonce, sealed)?;
        let (server_short, cookie) = opened.split_first_chunk::<KEY>().ok_or(Fault::Malformed)?;
        let server_short = PublicKey::from(*server_short);
        let (short, client) = (self.short.public_key(), self.keys.client.public_key());
        let vouch = seal(
            &SalsaBox::new(&server_short, &self.keys.client),
            &long_nonce(b"VOUCH---", &self.vouch),
            &[short.as_bytes(), self.keys.server.as_bytes()],
        )?;
        let session = SalsaBox::new(&server_short, &self.short);
        let nonce = self.next_nonce();
        let sealed = seal(
            &session,
            &long_nonce(b"CurveZMQINITIATE", &nonce),
            &[client.as_bytes(), &self.vouch, &vouch, metadata],
        )?;
        self.session = Some(session);
        Ok([&b"\x08INITIATE"[..], cookie, &nonce, &sealed].concat())
    }

    /// Opens the data of the READY command and returns the peer's properties.
    pub(super) fn ready(&mut self, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let (nonce, sealed) = data.split_first_chunk::<8>().ok_or(Fault::Malformed)?;
        self.accept_nonce(nonce)?;
        let session = self.session.as_ref().ok_or(Fault::Malformed)?;
        open(session, &long_nonce(b"CurveZMQREADY---", nonce), sealed)
    }

    /// Returns the body of a frame that carries `payload`.
    pub(super) fn seal(&mut self, flags: u8, payload: &[u8]) -> Result<Vec<u8>, Fault> {
        let nonce = self.next_nonce();
        let session = self.session.as_ref().ok_or(Fault::Malformed)?;
        let sealed = seal(
            session,
            &long_nonce(b"CurveZMQMESSAGEC", &nonce),
            &[&[flags], payload],
        )?;
        Ok([MESSAGE, &nonce, &sealed].concat())
    }

    /// Opens the body of a frame in place and returns the payload's flags.
    pub(super) fn open(&mut self, body: &mut Vec<u8>) -> Result<u8, Fault> {
        if body.len() < MESSAGE_OVERHEAD {
            return Err(Fault::Malformed);
        }
        let (head, sealed) = body.split_at_mut(MESSAGE_OVERHEAD - 1);
        let head = head.strip_prefix(MESSAGE).ok_or(Fault::Malformed)?;
        let (nonce, tag) = head.split_first_chunk::<8>().ok_or(Fault::Malformed)?;
        self.accept_nonce(nonce)?;
        let session = self.session.as_ref().ok_or(Fault::Malformed)?;
        session
            .decrypt_in_place_detached(
                &long_nonce(b"CurveZMQMESSAGES", nonce),
                b"",
                sealed,
                Tag::from_slice(tag),
            )
            .map_err(|_| Fault::Curve)?;
        let flags = sealed.first().copied().ok_or(Fault::Malformed)?;
        body.drain(..MESSAGE_OVERHEAD);
        Ok(flags)
    }

    /// Checks that the peer's nonces grow, so that no box can be replayed within the connection.
    fn accept_nonce(&mut self, nonce: &[u8; 8]) -> Result<(), Fault> {
        let nonce = u64::from_be_bytes(*nonce);
        if nonce <= self.seen {
            return Err(Fault::Curve);
        }
        self.seen = nonce;
        Ok(())
    }
}

fn long_nonce(prefix: &[u8], rest: &[u8]) -> Nonce {
    prefix.iter().chain(rest).copied().collect()
}

/// Returns a box in NaCl's layout: the tag, then the text.
fn seal(key: &SalsaBox, nonce: &Nonce, parts: &[&[u8]]) -> Result<Vec<u8>, Fault> {
    let mut text = parts.concat();
    let tag = key.encrypt_in_place_detached(nonce, b"", &mut text);
    let tag = tag.map_err(|_| Fault::Curve)?;
    Ok([&tag[..], &text].concat())
}

fn open(key: &SalsaBox, nonce: &Nonce, sealed: &[u8]) -> Result<Vec<u8>, Fault> {
    let (tag, text) = sealed.split_first_chunk::<TAG>().ok_or(Fault::Malformed)?;
    let mut text = text.to_vec();
    key.decrypt_in_place_detached(nonce, b"", &mut text, Tag::from_slice(tag))
        .map_err(|_| Fault::Curve)?;
    Ok(text)
}
