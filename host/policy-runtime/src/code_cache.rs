//! Compiled code on disk, so that a router that starts again does not compile again what takes seconds: interpreters compiled to
//! WebAssembly.
//!
//! The one file of the router with `unsafe`: machine code that is read back runs unchecked. It is sound by who can have written it.
//! - The folder belongs to the router's user and nobody else may enter it. That is checked at each use, on the folder that is then read or
//!   written, by its descriptor: what its path names a moment later does not matter.
//! - What is in it was written by [`CodeCache::put`] alone, from what the compiler of such a process made, whole or not at all,
//!   under the hash of the component's bytes and of everything about the engine that code depends on.
//! - Each file begins with the hash of the rest, so that a damaged one is compiled again, not run.
//!
//! Whoever can write there all the same is that user or root, who may change the router itself.

use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, renameat, statat, unlinkat};
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use thiserror::Error;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::load::hex;

/// Files that are kept, the newest ones.
const KEPT: usize = 32;
/// Largest file that is read, in bytes; componentised Python has some 100 MB of code.
const LONGEST: u64 = 512 << 20;
/// Bytes of a SHA-256.
const HASH: usize = 32;

/// A folder of compiled code.
#[derive(Debug)]
pub struct CodeCache {
    path: PathBuf,
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
    /// Others could put machine code there.
    #[error(
        "trust `{}` with compiled policies: it belongs to user {owner} and has the mode {mode:o}; it must be the router's own, with 700",
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
    /// A cache in a folder, which is made where it is not there yet.
    ///
    /// # Errors
    /// [`CodeCacheError`] where others may write to it or read it, or it cannot be had.
    pub fn open(path: &Path) -> Result<Self, CodeCacheError> {
        let cache = Self {
            path: path.to_owned(),
        };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cache.failed(error)),
            _ => {}
        }
        cache.folder()?;
        Ok(cache)
    }

    /// What was compiled of these bytes for this engine, where it is there and whole.
    pub(crate) fn get(&self, engine: &Engine, bytes: &[u8]) -> Option<Component> {
        let folder = self.folder().ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, name(engine, bytes), flags, Mode::empty()).ok()?;
        let mut read = Vec::new();
        File::from(file).take(LONGEST).read_to_end(&mut read).ok()?;
        let (hash, code) = read.split_at_checked(HASH)?;
        if Sha256::digest(code)[..] != *hash {
            return None;
        }
        #[expect(unsafe_code, reason = "the only way to run code that was compiled before")]
        // SAFETY: `code` is what `Component::serialize` gave in `put`, unchanged: nobody but this user could write to the folder
        // that was opened, nothing of the router but `put` writes there, and the hash above is that of what it wrote. Code of other
        // versions or settings of wasmtime has another name, and would be refused by wasmtime's own header.
        let component = unsafe { Component::deserialize(engine, code) };
        component.ok()
    }

    /// Keeps what was compiled of these bytes.
    pub(crate) fn put(
        &self,
        engine: &Engine,
        bytes: &[u8],
        component: &Component,
    ) -> Result<(), CodeCacheError> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let folder = self.folder()?;
        let code = component
            .serialize()
            .map_err(|error| self.failed(io::Error::other(error.to_string())))?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let fresh = format!("{}-{number}.writing", process::id());
        let write = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&folder, &fresh, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(&Sha256::digest(&code))?;
            file.write_all(&code)?;
            renameat(&folder, &fresh, &folder, name(engine, bytes)).map_err(io::Error::from)
        };
        write().map_err(|error| {
            // What is half-written has no name that is read.
            let _ = unlinkat(&folder, &fresh, AtFlags::empty());
            self.failed(error)
        })?;
        // What is left too much is removed the next time.
        let _ = prune(&folder);
        Ok(())
    }

    /// The folder, if it is the router's own.
    fn folder(&self) -> Result<OwnedFd, CodeCacheError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(&self.path, flags, Mode::empty()).map_err(|error| self.failed(error.into()))?;
        let found = fstat(&folder).map_err(|error| self.failed(error.into()))?;
        let mode = Mode::from_raw_mode(found.st_mode);
        if found.st_uid != geteuid().as_raw() || mode.intersects(Mode::RWXG | Mode::RWXO) {
            return Err(CodeCacheError::NotOurs {
                path: self.path.clone(),
                owner: found.st_uid,
                mode: mode.as_raw_mode(),
            });
        }
        Ok(folder)
    }

    fn failed(&self, source: io::Error) -> CodeCacheError {
        CodeCacheError::Folder {
            path: self.path.clone(),
            source,
        }
    }
}

/// The name of a file: of the component's bytes, and of what the code depends on besides.
fn name(engine: &Engine, bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{}-{:016x}.code", hex(&Sha256::digest(bytes)), hasher.finish())
}

/// Whether a file of that name is one that [`name`] named, or one that was never finished.
fn is_ours(file: &str) -> bool {
    let hash =
        |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = file.strip_suffix(".code").and_then(|name| name.split_once('-'));
    code.is_some_and(|(bytes, engine)| hash(bytes, 2 * HASH) && hash(engine, 16))
        || file.ends_with(".writing")
}

/// Removes all but the newest files of the cache.
fn prune(folder: &OwnedFd) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let found = statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_ours = entry.file_name().to_str().is_ok_and(is_ours);
        if is_ours && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            files.push((
                (found.st_mtime, found.st_mtime_nsec),
                entry.file_name().to_owned(),
            ));
        }
    }
    files.sort_unstable_by(|a, b| b.cmp(a));
    for (_, name) in files.into_iter().skip(KEPT) {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}
