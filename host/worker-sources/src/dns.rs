//! DNS: A, AAAA and SRV records of a name.
//!
//! The resolver has no cache of its own: the servers keep the records as long as they may. It is set up for each query,
//! so that changes of the system's settings count.

use std::net::IpAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use worker_discovery::{Decoded, DiscoveredWorker};

use crate::error::SourceError;
use crate::spec::{DnsServer, SourceSpec};

/// Queries of a name before it fails.
const ATTEMPTS: usize = 2;

/// Resolves a name to addresses. IPv6 addresses are queried for a name without IPv4 addresses: a machine with both is
/// one worker.
pub(crate) async fn addresses(
    name: &str,
    port: u16,
    server: DnsServer,
    spec: &SourceSpec,
) -> Result<Decoded, SourceError> {
    let of_family = async |family| -> Result<Result<Vec<IpAddr>, NetError>, SourceError> {
        let found = resolver(server, spec, Some(family))?.lookup_ip(name).await;
        Ok(found.map(|found| found.iter().collect()))
    };
    // The resolver's own order of the two families hides a failure of the IPv4 query.
    let mut found = of_family(LookupIpStrategy::Ipv4Only).await?;
    // Also without the name: with a search list, NXDOMAIN is of the last name only, and another may have IPv6
    // addresses.
    if found
        .as_ref()
        .map_or_else(NetError::is_no_records_found, Vec::is_empty)
    {
        found = of_family(LookupIpStrategy::Ipv6Only).await?;
    }
    let found = match found {
        Ok(found) => found,
        Err(error) if is_empty(&error) => Vec::new(),
        Err(source) => return Err(failed(name, source)),
    };
    let mut decoded = Decoded::default();
    for address in found {
        let address = match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        };
        decoded.entry(&address, DiscoveredWorker::at(&address, &spec.defaults));
    }
    Ok(decoded.finish(&spec.defaults)?)
}

/// Resolves a name to hosts and ports, whatever their priority.
pub(crate) async fn services(
    name: &str,
    server: DnsServer,
    spec: &SourceSpec,
) -> Result<Decoded, SourceError> {
    let resolver = resolver(server, spec, None)?;
    let mut decoded = Decoded::default();
    let found = match resolver.lookup(name, RecordType::SRV).await {
        Ok(found) => found,
        Err(error) if is_empty(&error) => return Ok(decoded),
        Err(source) => return Err(failed(name, source)),
    };
    for record in found.answers() {
        let RData::SRV(service) = &record.data else {
            continue;
        };
        // RFC 2782: the service is not available.
        if service.target.is_root() {
            continue;
        }
        let host = service.target.to_ascii();
        let address = format!("{}:{}", host.trim_end_matches('.'), service.port);
        decoded.entry(&address, DiscoveredWorker::at(&address, &spec.defaults));
    }
    Ok(decoded.finish(&spec.defaults)?)
}

/// Returns a resolver, for addresses of one family.
fn resolver(
    server: DnsServer,
    spec: &SourceSpec,
    family: Option<LookupIpStrategy>,
) -> Result<TokioResolver, SourceError> {
    let mut builder = match server {
        DnsServer::System => TokioResolver::builder_tokio().map_err(SourceError::Resolver)?,
        DnsServer::At(address) => {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.attempts = ATTEMPTS;
    options.timeout = spec.timeout / 2;
    if let Some(family) = family {
        options.ip_strategy = family;
    }
    builder.build().map_err(SourceError::Resolver)
}

/// Returns true for a name that exists and has no such records. A name that does not exist is an error.
fn is_empty(error: &NetError) -> bool {
    error.is_no_records_found() && !error.is_nx_domain()
}

fn failed(name: &str, source: NetError) -> SourceError {
    SourceError::Dns {
        name: name.to_owned(),
        source,
    }
}
