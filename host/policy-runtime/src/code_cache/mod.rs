//! Code cache: compiled code on disk, so that a restart does not compile again. Interpreters compiled to WebAssembly
//! take seconds to compile.
//!
//! Machine code runs unchecked, so only code written by the same user's router is trusted:
//! - The folder belongs to the router's user and is closed to others. Each use checks this on the descriptor of the
//!   folder that is then read or written, so a later change of its path does not matter. An open folder is emptied and
//!   closed.
//! - A file is opened without following links and checked by its descriptor: a regular file with one name, owned by the
//!   user, writable by no one else. Files placed while the folder was open, or from a backup, fail here or below.
//! - A file has a MAC over its name and code, with a key of the folder that never leaves it. The MAC is verified over
//!   the bytes in memory, which are the ones that run. The name contains the hash of the component's bytes and of all
//!   engine settings that code depends on, so code under another policy's name is refused as well.
//!
//! Anyone who can still write there and has the key is that user or root, who may change the router itself.

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

use routing::hex;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tracing::warn;
use wasmtime::Engine;
use wasmtime::component::Component;

use self::file::ExistingFile;
use self::key::CacheKey;
pub use self::rejection::CodeCacheStats;
use self::rejection::{CacheCounters, CacheRejection};
use crate::machine_code::{self, Voucher};

/// Largest file that is read, in bytes; componentised Python has about 100 MB of code.
const LONGEST: u64 = 512 << 20;
/// Bytes of a SHA-256, and of a MAC with it.
const HASH: usize = 32;
/// Magic number at the start of a cache file. The MAC and the code follow.
const MAGIC: &[u8; 16] = b"conductor code 2";

/// A folder of compiled code.
#[derive(Debug)]
pub struct CodeCache {
    path: PathBuf,
    counters: CacheCounters,
}

/// The folder cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CodeCacheError {
    /// The folder cannot be created or opened, or is a link.
    #[error("use `{}` for compiled policies", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Others could put machine code there, and it has other files, so it cannot be emptied and closed.
    #[error(
        "trust `{}` with compiled policies: it belongs to user {owner}, has the mode {mode:o}, and is not the cache's alone; it must be the \
         router's own, with 700",
        path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Owner.
        owner: u32,
        /// Permissions.
        mode: u32,
    },
}

impl CodeCache {
    /// Opens a cache in a folder; creates the folder if needed. A folder of cache files that others may enter is
    /// emptied and closed.
    ///
    /// # Errors
    /// [`CodeCacheError`] if it belongs to another user, is open and has other files, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, CodeCacheError> {
        let cache = Self {
            path: path.to_owned(),
            counters: CacheCounters::default(),
        };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cache.failed(error)),
            _ => {}
        }
        cache.folder()?;
        Ok(cache)
    }

    /// Returns the counters of its files since it was opened.
    #[must_use]
    pub fn stats(&self) -> CodeCacheStats {
        self.counters.stats()
    }

    /// Returns the compiled code of these bytes for this engine, if it is cached and trusted.
    pub(crate) fn get(&self, engine: &Engine, bytes: &[u8]) -> Option<Component> {
        let folder = self.folder().ok()?;
        let key = self.key(&folder)?;
        let name = name(engine, bytes);
        match taken(engine, &folder, &name, &key) {
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

    /// Stores the compiled code of these bytes.
    pub(crate) fn put(&self, engine: &Engine, bytes: &[u8], code: &[u8]) -> Result<(), CodeCacheError> {
        let folder = self.folder()?;
        let key = match self.key(&folder) {
            Some(key) => key,
            None => {
                CacheKey::make(&folder).map_err(|error| self.failed(error))?;
                let made = self.key(&folder);
                made.ok_or_else(|| self.failed(io::Error::other("its key cannot be read back")))?
            }
        };
        let name = name(engine, bytes);
        let mac = key.sign(&[MAGIC, name.as_bytes(), code]);
        let written = file::write(&folder, &name, &[MAGIC, &mac, code], ExistingFile::Replaced);
        written.map_err(|error| self.failed(error))?;
        self.counters.written.fetch_add(1, Ordering::Relaxed);
        // Files beyond the limit are removed the next time.
        let _ = folder::prune(&folder);
        Ok(())
    }

    /// Returns the folder after the checks.
    fn folder(&self) -> Result<OwnedFd, CodeCacheError> {
        let (folder, open) = folder::enter(&self.path)?;
        if let Some(mode) = open {
            self.reject("", &CacheRejection::OpenFolder { mode });
        }
        Ok(folder)
    }

    /// Returns the folder's key. Without a trusted key no file is trusted, and all are removed.
    fn key(&self, folder: &OwnedFd) -> Option<CacheKey> {
        match CacheKey::read(folder) {
            Ok(key) => key,
            Err(rejection) => {
                self.reject(key::KEY, &rejection);
                file::remove(folder, key::KEY);
                let _ = folder::clear(folder);
                None
            }
        }
    }

    fn reject(&self, name: &str, rejection: &CacheRejection) {
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

/// Returns the code of a file once its MAC is verified.
fn taken(
    engine: &Engine,
    folder: &OwnedFd,
    name: &str,
    key: &CacheKey,
) -> Result<Option<Component>, CacheRejection> {
    let Some(read) = file::read(folder, name, Mode::WGRP | Mode::WOTH, LONGEST)? else {
        return Ok(None);
    };
    let rest = read.strip_prefix(MAGIC).ok_or(CacheRejection::Format)?;
    let (mac, code) = rest.split_at_checked(HASH).ok_or(CacheRejection::Format)?;
    if !key.verifies(&[MAGIC, name.as_bytes(), code], mac) {
        return Err(CacheRejection::Mac);
    }
    let component = machine_code::restore(engine, code, Voucher::Mac);
    component
        .map(Some)
        .map_err(|error| CacheRejection::Engine(error.into()))
}

/// Returns the name of a file: a hash of the component's bytes and of everything else that the code depends on.
fn name(engine: &Engine, bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{}-{:016x}.code", hex(&Sha256::digest(bytes)), hasher.finish())
}
