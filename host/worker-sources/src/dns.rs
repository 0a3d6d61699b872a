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
    // The resolver's own order of the two drops a failure of the first query.
    let ipv4 = of_family(name, resolver(server, spec, LookupIpStrategy::Ipv4Only)?).await;
    let found = match ipv4 {
        Ok(found) if !found.is_empty() => Ok(found),
        Err(error) if !error.is_no_records_found() => Err(error),
        // With a search list, the name that exists may be another one than the last.
        Ok(_) | Err(_) => of_family(name, resolver(server, spec, LookupIpStrategy::Ipv6Only)?).await,
    };
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

/// Resolves a name to the addresses of the resolver's family.
async fn of_family(name: &str, resolver: TokioResolver) -> Result<Vec<IpAddr>, NetError> {
    let found = resolver.lookup_ip(name).await?;
    Ok(found.iter().collect())
}

/// Resolves a name to hosts and ports, whatever their priority.
pub(crate) async fn services(
    name: &str,
    server: DnsServer,
    spec: &SourceSpec,
) -> Result<Decoded, SourceError> {
    let resolver = resolver(server, spec, LookupIpStrategy::default())?;
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

/// Returns a resolver of addresses of this family, and of any other records.
fn resolver(
    server: DnsServer,
    spec: &SourceSpec,
    family: LookupIpStrategy,
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
    options.ip_strategy = family;
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
