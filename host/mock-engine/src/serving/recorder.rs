//! Request recorder: keeps the last requests unchanged, so that tests can inspect a router's requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;

/// Most bytes of bodies per path. The newest request is always kept.
const MAX_BYTES: usize = 16 << 20;

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// The last requests of each inference path.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Most requests per path.
    limit: usize,
    paths: Mutex<HashMap<&'static str, VecDeque<Recorded>>>,
}

impl Recorder {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            paths: Mutex::default(),
        }
    }

    pub(crate) fn record(&self, path: &'static str, headers: HeaderMap, body: Bytes) {
        if self.limit == 0 {
            return;
        }
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = paths.entry(path).or_default();
        requests.push_back(Recorded { headers, body });
        let bytes = |requests: &VecDeque<Recorded>| requests.iter().map(|it| it.body.len()).sum::<usize>();
        while requests.len() > self.limit || requests.len() > 1 && bytes(requests) > MAX_BYTES {
            requests.pop_front();
        }
    }

    /// Returns the requests, oldest first.
    pub(crate) fn requests(&self, path: &str) -> Vec<Recorded> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.get(path).into_iter().flatten().cloned().collect()
    }
}
