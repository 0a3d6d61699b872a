//! Secret of a file that may be replaced at any time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use crate::client::NatsError;

/// File of a secret, which is read for each connection.
pub(crate) struct SecretFile<T> {
    file: PathBuf,
    read: fn(&Path) -> io::Result<T>,
    last: Mutex<LastRead<T>>,
}

/// Secret that was read last.
struct LastRead<T> {
    secret: T,
    /// Set while the file cannot be read.
    is_unreadable: bool,
}

impl<T: Clone> SecretFile<T> {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`NatsError::Credentials`] if it cannot be read.
    pub(crate) fn open(file: PathBuf, read: fn(&Path) -> io::Result<T>) -> Result<Self, NatsError> {
        let secret = read(&file).map_err(|source| NatsError::Credentials {
            path: file.display().to_string(),
            source,
        })?;
        let last = Mutex::new(LastRead {
            secret,
            is_unreadable: false,
        });
        Ok(Self { file, read, last })
    }

    /// Returns the secret that the file has, or had before it became unreadable: while it is replaced it may be
    /// missing, or half-written.
    pub(crate) fn secret(&self) -> T {
        let read = (self.read)(&self.file);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let was_unreadable = std::mem::replace(&mut last.is_unreadable, read.is_err());
        match read {
            Ok(secret) => last.secret = secret,
            Err(error) if !was_unreadable => {
                let (file, error) = (self.file.display(), &error as &dyn std::error::Error);
                warn!(%file, error, "the credentials of NATS cannot be read; those that were read before are used");
            }
            Err(_) => {}
        }
        last.secret.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &Path) -> io::Result<String> {
        let text = std::fs::read_to_string(file)?;
        let is_whole = text.ends_with('\n');
        is_whole
            .then_some(text)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_secret_that_was_read_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "first\n").unwrap();
        let file = SecretFile::open(path.clone(), read).unwrap();
        assert_eq!(file.secret(), "first\n");
        std::fs::write(&path, "second\n").unwrap();
        assert_eq!(file.secret(), "second\n");
        for _ in 0..2 {
            std::fs::write(&path, "half").unwrap();
            assert_eq!(file.secret(), "second\n");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(file.secret(), "second\n");
        }
        std::fs::write(&path, "third\n").unwrap();
        assert_eq!(file.secret(), "third\n");
    }
}
