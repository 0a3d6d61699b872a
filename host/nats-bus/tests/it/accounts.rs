//! Credentials files: tokens of users, signed by an account whose own token an operator has signed.

use std::fs;

use nats_bus::{NatsBus, NatsOptions};
use nats_server::NatsSite;
use nkeys::KeyPair;
use replicas::RouterId;

use crate::{options, passed_on};

/// Returns bytes as the text of a token.
fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = |chunk: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| {
            bits << 8 | usize::from(*chunk.get(at).unwrap_or(&0))
        });
        let digit = move |at| char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
        (0..=chunk.len()).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// Returns a token of `subject`, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &KeyPair, claims: &str) -> String {
    let (issuer_key, subject) = (issuer.public_key(), subject.public_key());
    let claims = format!(
        r#"{{"jti":"1","iat":1700000000,"iss":"{issuer_key}","name":"t","sub":"{subject}","nats":{{{claims},"version":2}}}}"#
    );
    let head = base64url(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let text = format!("{head}.{}", base64url(claims.as_bytes()));
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", base64url(&signature))
}

/// Account of an operator of its own.
struct Account {
    operator: KeyPair,
    account: KeyPair,
    /// Account of the server itself, which JetStream needs.
    system: KeyPair,
}

impl Account {
    fn new() -> Self {
        Self {
            operator: KeyPair::new_operator(),
            account: KeyPair::new_account(),
            system: KeyPair::new_account(),
        }
    }

    /// Returns the settings of a server whose users are this account's alone.
    fn settings(&self) -> String {
        const LIMITS: &str = r#""type":"account","limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1}"#;
        let entry = |account: &KeyPair| {
            let token = token(&self.operator, account, LIMITS);
            format!("{}: {token}", account.public_key())
        };
        format!(
            "trusted_keys: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n{}\n{}\n}}",
            self.operator.public_key(),
            self.system.public_key(),
            entry(&self.system),
            entry(&self.account)
        )
    }

    /// Returns the credentials of a new user.
    fn credentials(&self) -> String {
        const USER: &str = r#""type":"user","pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1"#;
        let user = KeyPair::new_user();
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(&self.account, &user, USER),
            user.seed().unwrap()
        )
    }
}

#[tokio::test]
async fn replaced_credentials_are_used_at_the_next_connection() {
    let site = NatsSite::new().unwrap();
    let (old, new) = (Account::new(), Account::new());
    let file = site.folder().join("router.creds");
    let with_credentials = |router| NatsOptions {
        credentials: Some(file.clone()),
        ..options(&site, "main", router)
    };
    fs::write(&file, old.credentials()).unwrap();
    let Some(server) = site.start_with(&old.settings()) else {
        return;
    };
    let one = NatsBus::start(&with_credentials(1), RouterId(1)).await.unwrap();
    let mut two = NatsBus::start(&with_credentials(2), RouterId(2)).await.unwrap();
    assert_eq!(passed_on(&one, &mut two, &[1]).await, [1]);
    drop(server);
    fs::write(&file, new.credentials()).unwrap();
    let Some(_server) = site.start_with(&new.settings()) else {
        return;
    };
    // Some messages of the old connection may still wait.
    while passed_on(&one, &mut two, &[2]).await != [2] {}
}
