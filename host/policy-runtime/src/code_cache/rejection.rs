//! Why a file of the cache is not run, and how often.

use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// A file, or the whole folder, is not trusted. Each message ends with the cure.
#[derive(Debug, Error)]
pub(crate) enum Rejection {
    /// The folder was open to others.
    #[error(
        "others could enter the folder (mode {mode:o}): it is emptied and made 700; find out what opened it, a umask or a `chmod`"
    )]
    OpenFolder {
        /// Its mode.
        mode: u32,
    },
    /// It cannot be opened or read.
    #[error("failed to read it: it is compiled anew; let the router's user read it, or remove it")]
    Unreadable(#[source] io::Error),
    /// A link leads away.
    #[error("it is a symbolic link: it is removed, and compiled anew")]
    Link,
    /// A folder, a pipe, a socket.
    #[error("it is no regular file: it is removed, and compiled anew")]
    NotAFile,
    /// Somebody else's.
    #[error(
        "it belongs to user {owner}: it is removed, and compiled anew; find out who can write to the folder"
    )]
    Owner {
        /// Whose it is.
        owner: u32,
    },
    /// Others may write to it, or read what only the router may.
    #[error(
        "others may read or write it (mode {mode:o}): it is removed, and compiled anew; find out what opened it, a umask or a `chmod`"
    )]
    Mode {
        /// Its mode.
        mode: u32,
    },
    /// It has other names, through which it can be changed.
    #[error("it has {links} names: this one is removed, and it is compiled anew")]
    Links {
        /// How many.
        links: u64,
    },
    /// Longer than code can be.
    #[error("it has more than {most} bytes: it is removed, and compiled anew")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// Too short, or of another format.
    #[error("it is cut off or of an older router: it is removed, and compiled anew")]
    Format,
    /// Not from this router.
    #[error(
        "its MAC is not of this folder's key: it was changed, or is of another folder; it is removed, and compiled anew"
    )]
    Mac,
    /// For another engine, though its name says otherwise.
    #[error("the engine refuses it: it is removed, and compiled anew")]
    Engine(#[source] Box<dyn StdError + Send + Sync>),
}

/// The reasons for programs, in the order of [`Rejection::index`].
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

impl Rejection {
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

    /// Its name for programs.
    pub(crate) fn reason(&self) -> &'static str {
        REASONS[self.index()]
    }
}

/// What became of the files of a cache since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeCacheStats {
    /// Times code was taken from a file.
    pub taken: u64,
    /// Files that were written.
    pub written: u64,
    /// Files, and folders, that were not trusted, by the reason.
    pub rejected: Vec<(&'static str, u64)>,
}

/// The same as it is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) taken: AtomicU64,
    pub(super) written: AtomicU64,
    rejected: [AtomicU64; REASONS.len()],
}

impl Counters {
    pub(super) fn reject(&self, rejection: &Rejection) {
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
