//! Writer of the imported configuration's text.

use std::fmt::Write as _;

use super::ImportedService;
use crate::toml_string::{comment, quoted};

pub(super) fn write(
    from: &str,
    level: Option<&str>,
    port: u16,
    services: &[ImportedService],
    warnings: &[String],
) -> String {
    let mut out = format!("# Made by `conductor import` from {}.\n", comment(from));
    if !warnings.is_empty() {
        out.push_str("# Not carried over as it was:\n");
        for warning in warnings {
            let _ = writeln!(out, "# - {}", comment(warning));
        }
    }
    out.push_str(
        "# To route requests too, add the engines' HTTP addresses as workers (see config/conductor.toml); a worker with\n\
         # `kv-events` then takes the place of its service below.\n",
    );
    if let Some(level) = level {
        let _ = write!(out, "\n[log]\nlevel = \"{level}\"\n");
    }
    let _ = write!(
        out,
        "\n[indexer]\n# On every interface, as before. Clients need no key: see `api-key-file`.\nlisten = \"0.0.0.0:{port}\"\n"
    );
    for service in services {
        write_service(&mut out, service);
    }
    out
}

fn write_service(out: &mut String, service: &ImportedService) {
    out.push_str("\n[[indexer.services]]\n");
    let mut text = |key: &str, value: &str| {
        let _ = writeln!(out, "{key} = {}", quoted(value));
    };
    text("endpoint", &service.endpoint);
    if let Some(replay) = &service.replay {
        text("replay", replay);
    }
    text("type", service.kind);
    text("model", &service.model);
    text("instance", &service.instance);
    text("tenant", &service.tenant);
    if let Some(lora) = &service.lora {
        text("lora", lora);
    }
    if let Some((algorithm, seed)) = &service.hash {
        text("hash-algorithm", algorithm);
        text("python-hash-seed", seed);
    }
    let _ = writeln!(
        out,
        "block-size = {}\nrank = {}",
        service.block_size, service.rank
    );
}
