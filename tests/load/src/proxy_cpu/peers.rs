//! Routers for language models that PyPI has as wheels: a Python launcher around a server in Rust. Each gets its
//! backends and its policy as its only options, and one thread because it is pinned to one core.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::free_port;

/// Peer system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// `vllm-router`
    Vllm,
    /// `sglang-router`
    Sglang,
    /// `smg`
    Smg,
}

/// Setup of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSetup {
    pub(super) peer: Peer,
    pub(super) policy: &'static str,
    /// Logs at level info, the default of all of them.
    pub(super) verbose: bool,
}

impl PeerSetup {
    /// Returns the name of its program.
    pub(super) fn program(self) -> &'static str {
        match self.peer {
            Peer::Vllm => "vllm-router",
            Peer::Sglang => "sglang-router",
            Peer::Smg => "smg",
        }
    }

    /// Returns its package on PyPI.
    pub(super) fn package(self) -> &'static str {
        match self.peer {
            Peer::Vllm => "vllm-router==0.1.17",
            Peer::Sglang => "sglang-router==0.3.2",
            Peer::Smg => "smg==1.13.0",
        }
    }

    /// Returns the command that runs it.
    pub(super) fn command(
        self,
        program: &Path,
        folder: &Path,
        listen: SocketAddr,
        backends: &[SocketAddr],
    ) -> Result<Command> {
        let metrics = free_port()?;
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .args(self.arguments(listen, metrics, backends));
        Ok(command)
    }

    fn arguments(self, listen: SocketAddr, metrics: u16, backends: &[SocketAddr]) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        if self.peer != Peer::Vllm {
            add(&["launch"]);
        }
        add(&[
            "--host",
            &listen.ip().to_string(),
            "--port",
            &listen.port().to_string(),
        ]);
        add(&["--policy", self.policy, "--prometheus-port", &metrics.to_string()]);
        let quiet = if self.peer == Peer::Vllm {
            "warning"
        } else {
            "warn"
        };
        add(&["--log-level", if self.verbose { "info" } else { quiet }]);
        add(&["--worker-startup-check-interval", "1"]);
        add(&["--worker-urls"]);
        arguments.extend(backends.iter().map(|address| format!("http://{address}")));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(peer: Peer, verbose: bool, expected: &str) {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let setup = PeerSetup {
            peer,
            policy: "round_robin",
            verbose,
        };
        let arguments = setup.arguments(address(80), 81, &[address(1), address(2)]);
        assert_eq!(arguments.join(" "), expected);
    }

    #[test]
    fn a_peer_gets_its_backends_last() {
        let end = "--worker-startup-check-interval 1 --worker-urls http://127.0.0.1:1 http://127.0.0.1:2";
        let begin = "--host 127.0.0.1 --port 80 --policy round_robin --prometheus-port 81 --log-level";
        check(Peer::Vllm, false, &format!("{begin} warning {end}"));
        check(Peer::Sglang, false, &format!("launch {begin} warn {end}"));
        check(Peer::Smg, true, &format!("launch {begin} info {end}"));
    }
}
