//! Secret key of a cache folder, readable only by the router's user.

use std::io;
use std::os::fd::OwnedFd;

use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::Mode;
use sha2::Sha256;

use super::HASH;
use super::file::{self, ExistingFile};
use super::rejection::CacheRejection;

/// Name of the key file.
pub(super) const KEY: &str = "key";
/// Length in bytes.
const LENGTH: usize = 32;
/// HMAC-SHA256 pads keys to this length with zeros.
const BLOCK: usize = 64;

/// Creates and verifies MACs.
pub(super) struct CacheKey([u8; BLOCK]);

impl CacheKey {
    /// Reads the key of a folder, if it has one.
    pub(super) fn read(folder: &OwnedFd) -> Result<Option<Self>, CacheRejection> {
        let closed_to = Mode::RWXG | Mode::RWXO;
        let Some(bytes) = file::read(folder, KEY, closed_to, LENGTH as u64)? else {
            return Ok(None);
        };
        if bytes.len() != LENGTH {
            return Err(CacheRejection::Format);
        }
        let mut key = [0; BLOCK];
        key[..LENGTH].copy_from_slice(&bytes);
        Ok(Some(Self(key)))
    }

    /// Creates a key for a folder. Of two concurrent processes one creates it; both then read the same.
    pub(super) fn make(folder: &OwnedFd) -> io::Result<()> {
        let mut key = [0; LENGTH];
        getrandom::fill(&mut key)?;
        file::write(folder, KEY, &[&key], ExistingFile::Stays)
    }

    /// Returns the MAC of code under its name.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; HASH] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Verifies a MAC in constant time.
    pub(super) fn verifies(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        self.mac(parts).verify_slice(mac).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        for part in parts {
            // Lengths first, so that different lists of parts never have equal bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}
