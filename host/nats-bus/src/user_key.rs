//! User of a credentials file of NATS: a token that an account has signed, and the key that proves its owner.

use std::io;
use std::path::{Path, PathBuf};

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;

use crate::client::NatsError;
use crate::secret_file::SecretFile;

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

/// Returns options that authenticate with the credentials that the file then has.
pub(crate) fn options(file: PathBuf) -> Result<ConnectOptions, NatsError> {
    let file = SecretFile::open(file, UserKey::read)?;
    Ok(ConnectOptions::with_auth_callback(move |challenge| {
        std::future::ready(file.secret().sign(&challenge))
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
}
