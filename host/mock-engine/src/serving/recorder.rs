//! Keeps the last requests as they came in, so that a test can see what a router really sent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;

/// Most bytes of bodies kept for one path, but for the newest request, which is always kept.
const MAX_BYTES: usize = 16 << 20;

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// All of them.
    pub headers: HeaderMap,
    /// Every byte.
    pub body: Bytes,
}

/// The last requests of each inference path.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Most requests of one path.
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

    /// Oldest first.
    pub(crate) fn requests(&self, path: &str) -> Vec<Recorded> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.get(path).into_iter().flatten().cloned().collect()
    }
}
