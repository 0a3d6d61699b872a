//! The secret of a folder: who knows it could read the folder, which only the router's user can.

use std::io;
use std::os::fd::OwnedFd;

use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::Mode;
use sha2::Sha256;

use super::HASH;
use super::file::{self, Existing};
use super::rejection::Rejection;

/// The file that has it.
pub(super) const KEY: &str = "key";
/// Its length in bytes.
const LENGTH: usize = 32;
/// HMAC-SHA256 fills keys up to this with zeros.
const BLOCK: usize = 64;

/// Makes and verifies MACs.
pub(super) struct Key([u8; BLOCK]);

impl Key {
    /// The key of a folder, where it has one.
    pub(super) fn read(folder: &OwnedFd) -> Result<Option<Self>, Rejection> {
        let limits = (Mode::RWXG | Mode::RWXO, LENGTH as u64);
        let Some(bytes) = file::read(folder, KEY, limits)? else {
            return Ok(None);
        };
        if bytes.len() != LENGTH {
            return Err(Rejection::Format);
        }
        let mut key = [0; BLOCK];
        key[..LENGTH].copy_from_slice(&bytes);
        Ok(Some(Self(key)))
    }

    /// Gives a folder a key. Of two processes at once one makes it; both then read the same.
    pub(super) fn make(folder: &OwnedFd) -> io::Result<()> {
        let mut key = [0; LENGTH];
        getrandom::fill(&mut key)?;
        file::write(folder, KEY, &[&key], Existing::Stays)
    }

    /// The MAC of code under its name.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; HASH] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether it is that, in a time that tells nothing.
    pub(super) fn verifies(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        self.mac(parts).verify_slice(mac).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        for part in parts {
            // Lengths first: no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}
