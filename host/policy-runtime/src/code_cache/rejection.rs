//! Rejections of cache files: reasons and counts.

use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// A file, or the whole folder, is not trusted. Each message ends with the fix.
#[derive(Debug, Error)]
pub(crate) enum CacheRejection {
    /// The folder was open to others.
    #[error(
        "others could enter the folder (mode {mode:o}): it is emptied and made 700; find out what opened it, a umask or a `chmod`"
    )]
    OpenFolder {
        /// Mode.
        mode: u32,
    },
    /// The file cannot be opened or read.
    #[error("failed to read it: it is compiled again; let the router's user read it, or remove it")]
    Unreadable(#[source] io::Error),
    /// A symbolic link.
    #[error("it is a symbolic link: it is removed, and compiled again")]
    Link,
    /// A folder, a pipe, a socket.
    #[error("it is not a regular file: it is removed, and compiled again")]
    NotAFile,
    /// Another user's file.
    #[error(
        "it belongs to user {owner}: it is removed, and compiled again; find out who can write to the folder"
    )]
    Owner {
        /// Owner.
        owner: u32,
    },
    /// Others may write to it, or read a secret.
    #[error(
        "others may read or write it (mode {mode:o}): it is removed, and compiled again; find out what opened it, a umask or a `chmod`"
    )]
    Mode {
        /// Mode.
        mode: u32,
    },
    /// The file has further hard links, through which it can be changed.
    #[error("it has {links} names: this one is removed, and it is compiled again")]
    Links {
        /// Number of links.
        links: u64,
    },
    /// Longer than code can be.
    #[error("it has more than {most} bytes: it is removed, and compiled again")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// Truncated, or of another format.
    #[error("it is cut off or of an older router: it is removed, and compiled again")]
    Format,
    /// The MAC is wrong.
    #[error(
        "its MAC is not of this folder's key: it was changed, or is of another folder; it is removed, and compiled again"
    )]
    Mac,
    /// The code is for another engine, although its name is right.
    #[error("the engine refuses it: it is removed, and compiled again")]
    Engine(#[source] Box<dyn StdError + Send + Sync>),
}

/// Machine-readable reasons, in the order of [`CacheRejection::index`].
const REASONS: [&str; 11] = [
    "open-folder",
    "unreadable",
    "link",
    "not-a-file",
    "owner",
    "mode",
    "links",
    "too-long",
    "format",
    "mac",
    "engine",
];

impl CacheRejection {
    fn index(&self) -> usize {
        match self {
            Self::OpenFolder { .. } => 0,
            Self::Unreadable(_) => 1,
            Self::Link => 2,
            Self::NotAFile => 3,
            Self::Owner { .. } => 4,
            Self::Mode { .. } => 5,
            Self::Links { .. } => 6,
            Self::TooLong { .. } => 7,
            Self::Format => 8,
            Self::Mac => 9,
            Self::Engine(_) => 10,
        }
    }

    /// Returns the machine-readable reason.
    pub(crate) fn reason(&self) -> &'static str {
        REASONS[self.index()]
    }
}

/// Counters of a cache's files since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeCacheStats {
    /// Times that code was read from a file.
    pub taken: u64,
    /// Files written.
    pub written: u64,
    /// Rejected files and folders, by reason.
    pub rejected: Vec<(&'static str, u64)>,
}

/// Current counters.
#[derive(Debug, Default)]
pub(super) struct CacheCounters {
    pub(super) taken: AtomicU64,
    pub(super) written: AtomicU64,
    rejected: [AtomicU64; REASONS.len()],
}

impl CacheCounters {
    pub(super) fn reject(&self, rejection: &CacheRejection) {
        self.rejected[rejection.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> CodeCacheStats {
        let rejected = REASONS.iter().zip(&self.rejected);
        CodeCacheStats {
            taken: self.taken.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            rejected: rejected
                .map(|(reason, count)| (*reason, count.load(Ordering::Relaxed)))
                .collect(),
        }
    }
}
