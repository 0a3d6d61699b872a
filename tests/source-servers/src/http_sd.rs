//! `http_sd` server with a scripted answer.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::http::{TlsCell, reply, serve};

/// Server of target groups at every path.
#[derive(Debug)]
pub struct HttpSd {
    address: SocketAddr,
    script: Arc<Mutex<SdScript>>,
}

/// Answer of the server.
#[derive(Debug)]
struct SdScript {
    status: u16,
    body: String,
    token: Option<String>,
    requests: usize,
}

impl HttpSd {
    /// Starts a server with this answer.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start(body: &str) -> io::Result<Self> {
        let script = Arc::new(Mutex::new(SdScript {
            status: 200,
            body: body.to_owned(),
            token: None,
            requests: 0,
        }));
        let served = Arc::clone(&script);
        let address = serve(TlsCell::default(), move |request, stream| {
            let (status, body) = {
                let mut script = lock(&served);
                script.requests += 1;
                let expected = script.token.as_ref().map(|token| format!("Bearer {token}"));
                match expected.is_none() || expected == request.authorization {
                    true => (script.status, script.body.clone()),
                    false => (401, "{}".to_owned()),
                }
            };
            reply(stream, status, &body)
        })?;
        Ok(Self { address, script })
    }

    /// Returns its URL with a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/targets", self.address)
    }

    /// Changes the answer.
    pub fn set(&self, status: u16, body: &str) {
        let mut script = lock(&self.script);
        script.status = status;
        body.clone_into(&mut script.body);
    }

    /// Requires a bearer token.
    pub fn require(&self, token: &str) {
        lock(&self.script).token = Some(token.to_owned());
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        lock(&self.script).requests
    }
}

fn lock(script: &Mutex<SdScript>) -> MutexGuard<'_, SdScript> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}
