//! HAProxy as a plain reverse proxy: the second yardstick.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Returns the command that runs it with a configuration of its own below `folder`.
pub(super) fn command(
    program: &Path,
    folder: &Path,
    listen: SocketAddr,
    backends: &[SocketAddr],
) -> Result<Command> {
    let file = folder.join("haproxy.cfg");
    fs::write(&file, config(listen, backends))
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    let mut command = Command::new(program);
    // Not as a daemon, and quiet.
    command.args(["-db", "-q", "-f"]).arg(&file);
    Ok(command)
}

/// Returns a configuration with one thread, kept connections on both sides, no log.
fn config(listen: SocketAddr, backends: &[SocketAddr]) -> String {
    let mut text = format!(
        "global
    nbthread 1
    maxconn 9000
    tune.bufsize 65536
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    option http-no-delay
    http-reuse always
frontend clients
    bind {listen} backlog 4096
    default_backend workers
backend workers
    balance roundrobin
"
    );
    for (number, address) in backends.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    server worker{number} {address} pool-max-conn 256");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_has_one_thread_and_a_server_per_backend() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = config(address(80), &[address(1), address(2)]);
        for line in [
            "    nbthread 1\n",
            "    bind 127.0.0.1:80 backlog 4096\n",
            "    server worker0 127.0.0.1:1 pool-max-conn 256\n    server worker1 127.0.0.1:2 pool-max-conn 256\n",
        ] {
            assert!(text.contains(line), "{line} is missing from\n{text}");
        }
    }
}
