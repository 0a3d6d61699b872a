//! User of a credentials file of NATS: a token that an account has signed, and the key that proves its owner.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;
use tracing::warn;

use crate::client::NatsError;

/// User of a credentials file.
#[derive(Clone)]
struct UserKey {
    token: String,
    key: KeyPair,
}

impl UserKey {
    fn read(file: &Path) -> io::Result<Self> {
        Self::parse(&std::fs::read_to_string(file)?)
    }

    fn parse(text: &str) -> io::Result<Self> {
        let invalid = |part: &str| io::Error::new(io::ErrorKind::InvalidData, format!("it has no {part}"));
        let mut parts = framed(text);
        let token = parts.next().ok_or_else(|| invalid("token of a user"))?;
        let seed = parts.next().ok_or_else(|| invalid("seed of a key"))?;
        let key = KeyPair::from_seed(seed).map_err(|_| invalid("valid seed of a key"))?;
        Ok(Self {
            token: token.to_owned(),
            key,
        })
    }

    /// Answers the challenge of a server.
    fn sign(self, challenge: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        auth.signature = Some(self.key.sign(challenge).map_err(AuthError::new)?);
        auth.jwt = Some(self.token);
        Ok(auth)
    }
}

/// Returns the lines between a line of dashes with a title and another one.
fn framed(text: &str) -> impl Iterator<Item = &str> {
    let is_frame = |line: &str| line.starts_with("---") && line.ends_with("---");
    let lines = || text.lines().map(str::trim);
    let inner = lines().skip(1).zip(lines().skip(2));
    let framed = lines().zip(inner);
    framed.filter_map(move |(before, (line, after))| {
        let is_framed = is_frame(before) && is_frame(after) && !line.is_empty();
        is_framed.then_some(line)
    })
}

/// Credentials file, whose user may be replaced at any time.
struct UserFile {
    file: PathBuf,
    last: Mutex<LastUser>,
}

/// User that was read last.
struct LastUser {
    user: UserKey,
    /// Set while the file cannot be read.
    is_unreadable: bool,
}

impl UserFile {
    fn open(file: PathBuf) -> io::Result<Self> {
        let user = UserKey::read(&file)?;
        let last = LastUser {
            user,
            is_unreadable: false,
        };
        let last = Mutex::new(last);
        Ok(Self { file, last })
    }

    /// Returns the user that the file has, or had before it became unreadable: while it is replaced it may be missing,
    /// or half-written.
    fn user(&self) -> UserKey {
        let read = UserKey::read(&self.file);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let was_unreadable = std::mem::replace(&mut last.is_unreadable, read.is_err());
        match read {
            Ok(user) => last.user = user,
            Err(error) if !was_unreadable => {
                let (file, error) = (self.file.display(), &error as &dyn std::error::Error);
                warn!(%file, error, "the credentials of NATS cannot be read; those that were read before are used");
            }
            Err(_) => {}
        }
        last.user.clone()
    }
}

/// Returns options that authenticate with the credentials that the file then has.
pub(crate) fn options(file: PathBuf) -> Result<ConnectOptions, NatsError> {
    let path = file.display().to_string();
    let file = UserFile::open(file).map_err(|source| NatsError::Credentials { path, source })?;
    Ok(ConnectOptions::with_auth_callback(move |challenge| {
        std::future::ready(file.user().sign(&challenge))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credentials_file_has_a_token_and_a_seed() {
        let seed = KeyPair::new_user().seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\r\na.b-c_d.e\r\n------END NATS USER JWT------\r\n\r\n\
             ************************* IMPORTANT *************************\r\nKeep it secret.\r\n\r\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\r\n"
        );
        let user = UserKey::parse(&text).unwrap();
        assert_eq!(
            (user.token, user.key.seed().unwrap()),
            ("a.b-c_d.e".to_owned(), seed.clone())
        );
        let refused = |text: &str| UserKey::parse(text).err().map(|error| error.to_string());
        assert_eq!(refused(""), Some("it has no token of a user".to_owned()));
        let cut = &text[..text.find(&seed).unwrap() + 8];
        assert_eq!(refused(cut), Some("it has no seed of a key".to_owned()));
        let other = text.replace(&seed, "SUA");
        assert_eq!(refused(&other), Some("it has no valid seed of a key".to_owned()));
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_user_that_was_read_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("user.creds");
        let write = |token: &str| {
            let seed = KeyPair::new_user().seed().unwrap();
            std::fs::write(&path, format!("---\n{token}\n---\n---\n{seed}\n---\n")).unwrap();
        };
        write("first");
        let file = UserFile::open(path.clone()).unwrap();
        assert_eq!(file.user().token, "first");
        write("second");
        assert_eq!(file.user().token, "second");
        for _ in 0..2 {
            std::fs::write(&path, "---\n").unwrap();
            assert_eq!(file.user().token, "second");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(file.user().token, "second");
        }
        write("third");
        assert_eq!(file.user().token, "third");
    }
}
