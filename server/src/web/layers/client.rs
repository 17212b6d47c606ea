//! Whom a request comes from: its peer, or whom a trusted proxy names. What others say about it is ignored, which the log
//! says, because behind a proxy that nobody has named everybody seems to come from the proxy.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Mutex, PoisonError},
};

use axum::http::HeaderMap;

use crate::config::Reloadable;

/// The header that is believed when it comes from a trusted proxy.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Most networks of untrusted peers that are logged until the next start: anybody can send such a header.
const MAX_LOGGED_NETWORKS: usize = 32;

/// The peer, unless it is a trusted proxy: then the last address that no trusted proxy has.
pub fn address(peer: IpAddr, headers: &HeaderMap, config: &Reloadable) -> IpAddr {
    if !is_trusted(peer, config) {
        return peer.to_canonical();
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
    let hops: Vec<_> = lines.flat_map(|line| line.split(',')).map(|hop| hop.trim().parse::<IpAddr>()).collect();
    let mut last = peer;
    for hop in hops.into_iter().rev() {
        let Ok(hop) = hop else { break };
        last = hop;
        if !is_trusted(hop, config) {
            break;
        }
    }
    last.to_canonical()
}

fn is_trusted(ip: IpAddr, config: &Reloadable) -> bool {
    config.trusted_proxies.iter().any(|range| range.holds(ip))
}

/// The networks of peers that named a client without being trusted, each logged once.
#[derive(Debug, Default)]
pub struct UntrustedProxies(Mutex<BTreeSet<String>>);

impl UntrustedProxies {
    /// Logs that what this peer says about its client is ignored, unless its network was logged before. The header's
    /// content is not logged. Returns whether it was logged.
    pub fn note(&self, peer: IpAddr, headers: &HeaderMap, config: &Reloadable) -> bool {
        let Some(header) = [FORWARDED_FOR, "forwarded"].into_iter().find(|name| headers.contains_key(*name)) else {
            return false;
        };
        if is_trusted(peer, config) {
            return false;
        }
        let network = network(peer);
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_LOGGED_NETWORKS || !logged.insert(network.clone()) {
            return false;
        }
        tracing::warn!(
            peer.network = network,
            header,
            setting = "--trusted-proxy",
            "ignored whom a request was forwarded for, because its peer is no trusted proxy: for the audit and for limits \
             of sign-in attempts, everybody behind it has its address. If it is your proxy, name it with --trusted-proxy \
             (trusted-proxy in config.yaml, VIBER_BOARD_TRUSTED_PROXY)"
        );
        true
    }
}

/// The /24 of an IPv4 address, the /64 of an IPv6 address.
fn network(peer: IpAddr) -> String {
    match peer.to_canonical() {
        IpAddr::V4(ip) => format!("{}/24", Ipv4Addr::from_bits(ip.to_bits() & !0xff)),
        IpAddr::V6(ip) => format!("{}/64", Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::config::Config;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let mut config = Config::local("/tmp/x".into()).reloadable();
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("1.1.1.1, 9.9.9.9, 10.0.0.7"));
        assert_eq!(address(ip("127.0.0.1"), &headers, &config), ip("127.0.0.1"));
        config.trusted_proxies = vec!["127.0.0.1".parse().expect("a range"), "10.0.0.0/8".parse().expect("a range")];
        assert_eq!(address(ip("127.0.0.1"), &headers, &config), ip("9.9.9.9"));
        assert_eq!(address(ip("8.8.8.8"), &headers, &config), ip("8.8.8.8"));
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("junk"));
        assert_eq!(address(ip("127.0.0.1"), &headers, &config), ip("127.0.0.1"));
    }

    #[test]
    fn a_proxy_that_nobody_trusts_is_logged_once_for_its_network() {
        let mut config = Config::local("/tmp/x".into()).reloadable();
        config.trusted_proxies = vec!["10.0.0.0/8".parse().expect("a range")];
        let seen = UntrustedProxies::default();
        let says =
            |name: &'static str| HeaderMap::from_iter([(name.parse().expect("a name"), HeaderValue::from_static("x"))]);
        assert!(!seen.note(ip("192.0.2.1"), &HeaderMap::new(), &config), "it says nothing");
        assert!(!seen.note(ip("10.1.1.1"), &says("x-forwarded-for"), &config), "it is trusted");
        assert!(seen.note(ip("192.0.2.1"), &says("x-forwarded-for"), &config));
        for again in ["192.0.2.1", "192.0.2.254", "::ffff:192.0.2.7"] {
            assert!(!seen.note(ip(again), &says("forwarded"), &config), "{again}");
        }
        assert!(seen.note(ip("2001:db8::1"), &says("forwarded"), &config));
        assert!(!seen.note(ip("2001:db8::2"), &says("forwarded"), &config));
        let more = (0..=255_u8).filter(|n| seen.note(IpAddr::from([198, 51, *n, 1]), &says("forwarded"), &config));
        assert_eq!(more.count(), MAX_LOGGED_NETWORKS - 2);
    }
}
