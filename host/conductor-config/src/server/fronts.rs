//! `trusted-fronts` of `[server]`: proxies whose statement of a client's address is trusted.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::value::Item;

/// Reads networks and single addresses.
pub(crate) fn read(item: &Item<'_>) -> Vec<IpNet> {
    let mut fronts = Vec::new();
    for text in item.text_or_texts().unwrap_or_default() {
        let network = text.text.parse::<IpNet>().ok();
        let network = network.or_else(|| text.text.parse::<IpAddr>().ok().map(IpNet::from));
        let problem = match network {
            None => Problem::new(
                Code::InvalidValue,
                &text.span,
                format!("`{}` is neither an address nor a network", text.text),
            )
            .help("write an address or a network with the length of its prefix, for example \"10.0.0.0/8\""),
            Some(network) if network.addr() != network.network() => Problem::new(
                Code::InvalidValue,
                &text.span,
                format!("`{}` has bits beyond the prefix of its network", text.text),
            )
            .help(format!(
                "write the network (\"{}\") or the address alone",
                network.trunc()
            )),
            Some(network) => {
                fronts.push(network);
                continue;
            }
        };
        item.report.push(problem);
    }
    fronts
}
