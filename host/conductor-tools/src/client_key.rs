//! `conductor client-key`: a fresh key for a client, and the hash that the configuration holds instead of it.

use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, Result};
use routing::hex;
use sha2::{Digest, Sha256};

use crate::{Exit, print};

/// Random bytes of a key.
const BYTES: usize = 32;

/// Prints a fresh key, and the line for `[clients.NAME]`.
///
/// # Errors
/// If the system has no random bytes, or standard output cannot be written.
pub fn print() -> Result<Exit> {
    let key = fresh().context("failed to read random bytes from the system")?;
    let hash = hex(&Sha256::digest(&key));
    print::write(format!("key:         {key}\nkey-sha256 = [\"{hash}\"]\n"))?;
    Ok(Exit::Success)
}

/// Returns a random key with the prefix that clients expect.
///
/// # Errors
/// If the system has no random bytes.
pub fn fresh() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("sk-{}", hex(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let (one, other) = (fresh().unwrap(), fresh().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 3 + 2 * BYTES);
    }
}
