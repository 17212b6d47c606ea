//! Where the registry is, and which addresses its name may lead to.
//!
//! A name leads where its owner says, from one moment to the next. So what a name is resolved to is looked at each
//! time, and the addresses that were looked at are the ones that are connected to: what lies inside a network, beside
//! the Board, or belongs to the machine's provider (169.254.169.254) cannot be reached by a name of the Internet. A
//! registry of one's own is named by its address.

use std::{
    error::Error as StdError,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// IPv4 networks that are not the public Internet, by their first address and the length of their prefix: the IANA
/// registry of special-purpose addresses, multicast, and what is reserved.
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The same within 2000::/3, outside of which no IPv6 address is public: what has an IPv4 address in it, and
/// documentation.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Where the registry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryAddress {
    origin: Url,
    reach: Reach,
}

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRegistryAddress(&'static str);

/// The addresses that are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Those of the public Internet, by a name.
    Public,
    /// This machine, by a name that means nothing else.
    Loopback,
    /// The one that the administrator wrote.
    Only(IpAddr),
}

impl RegistryAddress {
    /// Parses the configured URL: an origin, encrypted unless it is this machine. What is wrong is said without the
    /// URL, in which somebody may have put a password.
    pub fn parse(text: &str) -> Result<Self, BadRegistryAddress> {
        let bad = BadRegistryAddress("expected https://host or https://host:port, nothing after it");
        let origin = Url::parse(text).map_err(|_| bad)?;
        let is_bare = origin.path() == "/" && origin.query().is_none() && origin.fragment().is_none();
        let is_anonymous = origin.username().is_empty() && origin.password().is_none();
        let host = origin.host_str().filter(|_| is_bare && is_anonymous).ok_or(bad)?;
        let reach = Reach::of(host).ok_or(BadRegistryAddress("that address belongs to no registry"))?;
        match origin.scheme() {
            "https" => {}
            "http" if reach.is_this_machine() => {}
            "http" => return Err(BadRegistryAddress("plain http is for this machine alone; expected https://…")),
            _ => return Err(bad),
        }
        Ok(Self { origin, reach })
    }

    /// Its URL, without a path.
    pub(super) fn origin(&self) -> &Url {
        &self.origin
    }

    /// The name or address of its machine.
    pub fn host(&self) -> &str {
        self.origin.host_str().unwrap_or_default()
    }

    /// What resolves its name for a client. An address that is written out is not asked about, and is the only one
    /// then.
    pub(super) fn resolver(&self) -> CheckedNames {
        CheckedNames(self.reach)
    }
}

impl Reach {
    /// What a host of a URL stands for; `None` where nobody serves.
    fn of(host: &str) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            return (ip.is_loopback() || is_private(ip) || is_public(ip)).then_some(Self::Only(ip));
        }
        let name = bare.trim_end_matches('.');
        let is_this_machine = name == "localhost" || name.ends_with(".localhost");
        Some(if is_this_machine { Self::Loopback } else { Self::Public })
    }

    fn is_this_machine(self) -> bool {
        match self {
            Self::Public => false,
            Self::Loopback => true,
            Self::Only(ip) => ip.is_loopback(),
        }
    }

    /// Whether a connection may be made to this address.
    fn admits(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        match self {
            Self::Public => is_public(ip),
            Self::Loopback => ip.is_loopback(),
            Self::Only(own) => ip == own,
        }
    }
}

/// Resolves names as the machine does, and leaves out the addresses that may not be called.
pub(super) struct CheckedNames(Reach);

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(look_up(self.0, name))
    }
}

async fn look_up(reach: Reach, name: Name) -> Result<Addrs, Box<dyn StdError + Send + Sync>> {
    let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
    let admitted: Vec<SocketAddr> = found.filter(|address| reach.admits(address.ip())).collect();
    if admitted.is_empty() {
        return Err("its name leads to no address that may be called".into());
    }
    Ok(Box::new(admitted.into_iter()))
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

/// Whether it is an address of the public Internet.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !SPECIAL_V4.iter().any(|(net, bits)| (ip.to_bits() ^ net.to_bits()) >> (32 - bits) == 0),
        IpAddr::V6(ip) => match ip.segments() {
            // NAT64: what networks without IPv4 make of an IPv4 address.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                is_public(IpAddr::V4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))))
            }
            [first, ..] => {
                let is_special = |(net, bits): &(Ipv6Addr, u32)| (ip.to_bits() ^ net.to_bits()) >> (128 - bits) == 0;
                first & 0xe000 == 0x2000 && !SPECIAL_V6.iter().any(is_special)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_registry_is_an_origin() {
        for (url, host) in [
            ("https://clawhub.ai", "clawhub.ai"),
            ("https://Skills.Example:8443/", "skills.example"),
            ("https://10.1.2.3", "10.1.2.3"),
            ("https://[fd12::7]:8443", "[fd12::7]"),
            ("https://93.184.215.14", "93.184.215.14"),
            ("http://localhost:7500", "localhost"),
            ("http://registry.localhost", "registry.localhost"),
            ("http://127.0.0.1:7500", "127.0.0.1"),
            ("http://[::1]:7500", "[::1]"),
        ] {
            assert_eq!(RegistryAddress::parse(url).expect(url).host(), host);
        }
        for url in [
            "",
            "clawhub.ai",
            "//clawhub.ai",
            "https://",
            "https://clawhub.ai/api",
            "https://clawhub.ai/?x=y",
            "https://clawhub.ai/#x",
            "https://mia@clawhub.ai",
            "https://mia:secret@clawhub.ai",
            "http://clawhub.ai",
            "http://10.1.2.3",
            "http://localhost.example",
            "ftp://clawhub.ai",
            "file:///srv/skills",
            "unix:/run/skills.sock",
            "https://169.254.169.254",
            "https://0.0.0.0",
            "https://[::]",
            "https://[fe80::1]",
            "https://224.0.0.1",
            "https://100.64.0.1",
        ] {
            let Err(bad) = RegistryAddress::parse(url) else { panic!("{url}") };
            assert!(!bad.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_name_of_the_internet_leads_to_the_internet() {
        let public = RegistryAddress::parse("https://skills.example").expect("good").reach;
        for good in ["1.1.1.1", "93.184.215.14", "172.15.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(public.admits(ip(good)), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.1.2.3",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public.admits(ip(bad)), "{bad}");
        }
    }

    #[test]
    fn an_address_that_is_written_out_is_the_only_one() {
        // However it is written: the URL says it in the usual way.
        for url in ["http://127.0.0.1", "http://2130706433", "http://0x7f.1", "http://0177.0.0.1", "http://127.1"] {
            let reach = RegistryAddress::parse(url).expect(url).reach;
            assert_eq!(reach, Reach::Only(ip("127.0.0.1")), "{url}");
            assert!(reach.admits(ip("::ffff:127.0.0.1")) && !reach.admits(ip("127.0.0.2")), "{url}");
        }
        assert_eq!(RegistryAddress::parse("http://[::ffff:7f00:1]").expect("good").reach, Reach::Only(ip("127.0.0.1")));
        for url in ["http://localhost", "http://localhost.", "http://a.localhost"] {
            let reach = RegistryAddress::parse(url).expect(url).reach;
            assert!(reach.admits(ip("127.0.0.1")) && reach.admits(ip("::1")) && !reach.admits(ip("10.0.0.1")), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_not_followed() {
        let name = || "localhost".parse::<Name>().expect("a name");
        assert!(look_up(Reach::Loopback, name()).await.is_ok_and(|mut found| found.next().is_some()));
        let Err(why) = look_up(Reach::Public, name()).await else { panic!("this machine is not the Internet") };
        assert!(why.to_string().contains("no address"), "{why}");
    }
}
