//! Keys of client addresses, for counts per address.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of the network part of an IPv6 address.
const NETWORK_BITS: u32 = 64;

/// Maps an address to the key that its connections and prompts are counted by: the IPv4 address, or the /64 network of
/// an IPv6 address. A client chooses the other half of an IPv6 address freely.
pub(crate) fn address_key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = u128::BITS - NETWORK_BITS;
            let network = address.to_bits() >> host_bits << host_bits;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_counted_by_its_network() {
        let key = |address: &str| address_key(address.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:0:0:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
    }
}
