//! Compiled code on disk, so that a router that starts again does not compile again what takes seconds: interpreters compiled to
//! WebAssembly.
//!
//! Machine code that is read back runs unchecked, so nothing of the folder is believed that its user's own router did not write:
//! - The folder belongs to the router's user and nobody else may enter it. That is checked at each use, on the folder that is then read or
//!   written, by its descriptor: what its path names a moment later does not matter. One that was open is emptied and closed.
//! - A file is opened without following links, and looked at by its descriptor: a regular file of one name, the user's own, that nobody
//!   else may write to. What is put there while the folder is open, or from a backup, fails here or below.
//! - A file has a MAC over its name and its code, with a key of the folder's own that has never left it. It is verified over the bytes in
//!   memory, and those are what runs. The name has the hash of the component's bytes and of everything about the engine that code depends
//!   on: code of one policy under another's name is refused as well.
//!
//! Whoever can write there all the same and knows the key is that user or root, who may change the router itself.

mod file;
mod folder;
mod key;
mod rejection;

use std::error::Error as StdError;
use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::Mode;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tracing::warn;
use wasmtime::Engine;
use wasmtime::component::Component;

use self::file::Existing;
use self::key::Key;
pub use self::rejection::CodeCacheStats;
use self::rejection::{Counters, Rejection};
use crate::load::hex;
use crate::machine_code::{self, Voucher};

/// Largest file that is read, in bytes; componentised Python has some 100 MB of code.
const LONGEST: u64 = 512 << 20;
/// Bytes of a SHA-256, and of a MAC with it.
const HASH: usize = 32;
/// How a file begins. The MAC and the code follow.
const MAGIC: &[u8; 16] = b"conductor code 2";

/// A folder of compiled code.
#[derive(Debug)]
pub struct CodeCache {
    path: PathBuf,
    counters: Counters,
}

/// The folder cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CodeCacheError {
    /// It cannot be made or opened, or is a link.
    #[error("use `{}` for compiled policies", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Others could put machine code there, and it is not the cache's alone, which could be emptied and closed.
    #[error(
        "trust `{}` with compiled policies: it belongs to user {owner}, has the mode {mode:o}, and is not the cache's alone; it must be the \
         router's own, with 700",
        path.display()
    )]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// What its owner and others may do.
        mode: u32,
    },
}

impl CodeCache {
    /// A cache in a folder, which is made where it is not there yet. One with nothing but a cache in it that others may enter is
    /// emptied and closed.
    ///
    /// # Errors
    /// [`CodeCacheError`] where it is another's, or open and not the cache's alone, or cannot be had.
    pub fn open(path: &Path) -> Result<Self, CodeCacheError> {
        let cache = Self {
            path: path.to_owned(),
            counters: Counters::default(),
        };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cache.failed(error)),
            _ => {}
        }
        cache.folder()?;
        Ok(cache)
    }

    /// What became of its files since it was opened.
    #[must_use]
    pub fn stats(&self) -> CodeCacheStats {
        self.counters.stats()
    }

    /// What was compiled of these bytes for this engine, where it is there and ours.
    pub(crate) fn get(&self, engine: &Engine, bytes: &[u8]) -> Option<Component> {
        let folder = self.folder().ok()?;
        let key = self.key(&folder)?;
        let name = name(engine, bytes);
        match taken(engine, (&folder, &name), &key) {
            Ok(component) => {
                let component = component?;
                self.counters.taken.fetch_add(1, Ordering::Relaxed);
                Some(component)
            }
            Err(rejection) => {
                self.reject(&name, &rejection);
                file::remove(&folder, &name);
                None
            }
        }
    }

    /// Keeps what was compiled of these bytes.
    pub(crate) fn put(&self, engine: &Engine, bytes: &[u8], code: &[u8]) -> Result<(), CodeCacheError> {
        let folder = self.folder()?;
        let key = match self.key(&folder) {
            Some(key) => key,
            None => {
                Key::make(&folder).map_err(|error| self.failed(error))?;
                let made = self.key(&folder);
                made.ok_or_else(|| self.failed(io::Error::other("its key cannot be read back")))?
            }
        };
        let name = name(engine, bytes);
        let mac = key.sign(&[MAGIC, name.as_bytes(), code]);
        let written = file::write(&folder, &name, &[MAGIC, &mac, code], Existing::Replaced);
        written.map_err(|error| self.failed(error))?;
        self.counters.written.fetch_add(1, Ordering::Relaxed);
        // What is left too much is removed the next time.
        let _ = folder::prune(&folder);
        Ok(())
    }

    /// The folder, if it is the router's own by now.
    fn folder(&self) -> Result<OwnedFd, CodeCacheError> {
        let (folder, open) = folder::enter(&self.path)?;
        if let Some(mode) = open {
            self.reject("", &Rejection::OpenFolder { mode });
        }
        Ok(folder)
    }

    /// The folder's key. Without one that can be trusted no file can, and all are removed.
    fn key(&self, folder: &OwnedFd) -> Option<Key> {
        match Key::read(folder) {
            Ok(key) => key,
            Err(rejection) => {
                self.reject(key::KEY, &rejection);
                file::remove(folder, key::KEY);
                let _ = folder::clear(folder);
                None
            }
        }
    }

    fn reject(&self, name: &str, rejection: &Rejection) {
        self.counters.reject(rejection);
        warn!(
            file = %self.path.join(name).display(),
            reason = rejection.reason(),
            error = rejection as &dyn StdError,
            "compiled code on disk is not trusted"
        );
    }

    fn failed(&self, source: io::Error) -> CodeCacheError {
        CodeCacheError::Folder {
            path: self.path.clone(),
            source,
        }
    }
}

/// The code of a file, where the file is there, once its MAC is verified.
fn taken(
    engine: &Engine,
    (folder, name): (&OwnedFd, &str),
    key: &Key,
) -> Result<Option<Component>, Rejection> {
    let Some(read) = file::read(folder, name, (Mode::WGRP | Mode::WOTH, LONGEST))? else {
        return Ok(None);
    };
    let rest = read.strip_prefix(MAGIC).ok_or(Rejection::Format)?;
    let (mac, code) = rest.split_at_checked(HASH).ok_or(Rejection::Format)?;
    if !key.verifies(&[MAGIC, name.as_bytes(), code], mac) {
        return Err(Rejection::Mac);
    }
    let component = machine_code::restore(engine, code, Voucher::Mac);
    component
        .map(Some)
        .map_err(|error| Rejection::Engine(error.into()))
}

/// The name of a file: of the component's bytes, and of what the code depends on besides.
fn name(engine: &Engine, bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{}-{:016x}.code", hex(&Sha256::digest(bytes)), hasher.finish())
}
