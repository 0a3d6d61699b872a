//! nginx as a plain reverse proxy: the yardstick for what a proxy on one core must cost.

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
    let file = folder.join("nginx.conf");
    fs::write(&file, config(folder, listen, backends))
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(folder)
        .arg("-e")
        .arg(folder.join("error.log"))
        .arg("-c")
        .arg(&file);
    Ok(command)
}

/// Returns a configuration with one worker, kept connections on both sides, no access log, bodies in memory.
fn config(folder: &Path, listen: SocketAddr, backends: &[SocketAddr]) -> String {
    let folder = folder.display();
    let servers = backends.iter().fold(String::new(), |mut servers, address| {
        // Writing to a string cannot fail.
        let _ = writeln!(servers, "        server {address};");
        servers
    });
    format!(
        "daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
worker_rlimit_nofile 20000;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_body_buffer_size 1m;
    client_max_body_size 16m;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    upstream backends {{
{servers}        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {listen} backlog=4096;
        location / {{
            proxy_pass http://backends;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_keeps_connections_and_writes_only_below_its_folder() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = config(Path::new("/tmp/x"), address(80), &[address(1), address(2)]);
        for line in [
            "worker_processes 1;",
            "listen 127.0.0.1:80 backlog=4096;",
            "server 127.0.0.1:1;\n        server 127.0.0.1:2;\n        keepalive 256;",
            "proxy_http_version 1.1;",
            "proxy_set_header Connection \"\";",
            "access_log off;",
        ] {
            assert!(text.contains(line), "{line} is missing from\n{text}");
        }
        let paths = text
            .split_ascii_whitespace()
            .filter(|word| word.starts_with('/') && word.len() > 1);
        assert!(
            paths.clone().all(|path| path.starts_with("/tmp/x/")),
            "{:?}",
            paths.collect::<Vec<_>>()
        );
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
