//! Metadata services, from which a machine gets its identity. A pod never contacts them, whatever
//! endpoint a DataVolume contains and wherever a server redirects: their responses contain the
//! identity of the node, and would end up on the disk.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use program::sockets;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use stream::error::SourceError;
use url::{Host, Url};

use super::{ImportPolicy, PolicyMode};
use crate::error::invalid_error;

/// Addresses of metadata services and of other services of a node that issue its identity, from
/// the documentation of each cloud.
const IPV4_ADDRESSES: [Ipv4Addr; 9] = [
    // Amazon, Google, Azure, Oracle, OpenStack, DigitalOcean, Hetzner, IBM and others.
    Ipv4Addr::new(169, 254, 169, 254),
    // GKE's metadata server on the node, to which it redirects the address above.
    Ipv4Addr::new(169, 254, 169, 252),
    // Credentials of ECS tasks, and of EKS pods.
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    // Azure's WireServer.
    Ipv4Addr::new(168, 63, 129, 16),
    // Alibaba, Tencent, Scaleway, Oracle's older cloud.
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same services over IPv6, except addresses that contain one of the addresses above (Oracle,
/// OpenStack, Akamai).
const IPV6_ADDRESSES: [Ipv6Addr; 5] = [
    // Amazon's metadata service, and the credentials of EKS pods.
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    // Google, Alibaba, Scaleway.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// Octets of an IPv6 address that can hold an IPv4 address: 6to4 (RFC 3056 §2) and the six layouts
/// of NAT64 (RFC 6052 §2.2). Mapped, compatible and ISATAP addresses also use the last layout. A
/// network chooses its own NAT64 prefix, so any prefix counts.
const EMBEDDED_AT: [[usize; 4]; 7] = [
    [2, 3, 4, 5],
    [4, 5, 6, 7],
    [5, 6, 7, 9],
    [6, 7, 9, 10],
    [7, 9, 10, 11],
    [9, 10, 11, 12],
    [12, 13, 14, 15],
];

/// The prefix of Teredo, whose addresses end with the complement of an IPv4 address (RFC 4380 §4).
const TEREDO: [u8; 4] = [0x20, 0x01, 0, 0];

/// Google's names for the metadata service, which a proxy might resolve.
const NAMES: [&str; 2] = ["metadata.google.internal", "metadata.goog"];

/// The endpoints of EKS Pod Identity, as the platform spells them.
pub const POD_IDENTITY_URLS: [&str; 2] =
    ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials"];

impl ImportPolicy {
    /// Returns a copy of these rules for credential requests. The copy also allows the endpoints of
    /// EKS Pod Identity, which are refused in DataVolumes and redirects.
    pub fn for_pod_identity(&self) -> Self {
        Self { asks_pod_identity: true, ..self.clone() }
    }

    /// Checks that requests to `url` are allowed at all.
    pub fn check_url(&self, url: &Url) -> Result<(), SourceError> {
        let is_metadata = match url.host() {
            Some(Host::Ipv4(ip)) => is_metadata(ip.into()),
            Some(Host::Ipv6(ip)) => is_metadata(ip.into()),
            Some(Host::Domain(name)) => NAMES.contains(&name.trim_end_matches('.')),
            None => false,
        };
        let is_pod_identity = self.asks_pod_identity && POD_IDENTITY_URLS.contains(&url.as_str());
        if self.face == PolicyMode::Pod && is_metadata && !is_pod_identity {
            return Err(invalid_error(refusal_message(url.host_str().unwrap_or_default())));
        }
        Ok(())
    }

    /// Returns the resolver of host names. In a pod it leaves out the addresses of metadata
    /// services, because any name may resolve to them.
    pub fn dns_resolver(&self) -> Arc<dyn Resolve> {
        Arc::new(DnsResolver { face: self.face })
    }
}

fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => IPV4_ADDRESSES.contains(&ip),
        IpAddr::V6(ip) => {
            IPV6_ADDRESSES.contains(&ip) || embedded_ipv4(ip).any(|ip| IPV4_ADDRESSES.contains(&ip))
        }
    }
}

/// Returns the IPv4 addresses to which a translator or tunnel may forward packets for `ip`.
fn embedded_ipv4(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let octets = ip.octets();
    let at = move |places: [usize; 4]| places.map(|place| octets[place]);
    let teredo = octets.starts_with(&TEREDO).then(|| at([12, 13, 14, 15]).map(|octet| !octet));
    EMBEDDED_AT.into_iter().map(at).chain(teredo).map(Ipv4Addr::from)
}

fn refusal_message(name: &str) -> String {
    format!("{name} is the metadata service of this machine, which imports must not access")
}

/// A resolver that returns an error if no thread can be started for the lookup, and that leaves
/// out the addresses of metadata services in a pod.
struct DnsResolver {
    face: PolicyMode,
}

impl Resolve for DnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_pod = self.face == PolicyMode::Pod;
        Box::pin(async move {
            let found = sockets::resolve_host(name.as_str(), 0).await?;
            let is_refused = |found: &SocketAddr| is_pod && is_metadata(found.ip());
            let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_refused);
            if others.is_empty() && !own.is_empty() {
                return Err(invalid_error(refusal_message(name.as_str())).into());
            }
            Ok(Box::new(others.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn metadata_services_are_recognised_in_every_notation() {
        let pod = ImportPolicy::for_pod(&HashMap::<String, String>::new(), true);
        for url in [
            "http://169.254.169.254/latest/meta-data/",
            "http://169.254.169.254:80/",
            "https://2852039166/",
            "http://0xa9.0xfe.0xa9.0xfe/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://[fd00:c1::a9fe:a9fe]/opc/v2/",
            "http://[fe80::a9fe:a9fe]/openstack/",
            "http://[fd00:a9fe:a9fe::1]/",
            "http://[fd00:100::100:200]/",
            "http://100.100.100.200/",
            "http://169.254.169.252:988/",
            "http://169.254.170.2/v2/credentials",
            "http://metadata.google.internal/computeMetadata/v1/",
            "http://METADATA.google.internal./",
        ] {
            let url = Url::parse(url).unwrap();
            assert!(pod.check_url(&url).is_err(), "{url}");
            assert!(
                ImportPolicy::default().check_url(&url).is_ok(),
                "the command line is its owner's: {url}"
            );
        }
        for url in [
            "http://169.254.20.10/",
            "http://[64:ff9b::a9fe:140a]/",
            "http://[2001:db8::1]/",
            "http://metadata/",
            "http://metadata.google.internal.example/",
        ] {
            assert!(pod.check_url(&Url::parse(url).unwrap()).is_ok(), "{url}");
        }
    }

    #[test]
    fn credentials_come_from_exactly_the_endpoints_of_eks_pod_identity() {
        let usual = ImportPolicy::for_pod(&HashMap::<String, String>::new(), true);
        let asking = usual.for_pod_identity();
        for url in POD_IDENTITY_URLS.map(|url| Url::parse(url).unwrap()) {
            assert!(POD_IDENTITY_URLS.contains(&url.as_str()), "{url} is spelled as URLs are");
            assert!(asking.check_url(&url).is_ok() && usual.check_url(&url).is_err(), "{url}");
        }
        for url in [
            "http://169.254.170.23/v1/credentials?a",
            "http://169.254.170.23/v1/credentials/",
            "http://169.254.170.23/v2/credentials",
            "http://169.254.170.23:8080/v1/credentials",
            "https://169.254.170.23/v1/credentials",
            "http://user@169.254.170.23/v1/credentials",
            "http://169.254.170.2/v1/credentials",
            "http://169.254.169.254/v1/credentials",
            "http://[::ffff:169.254.170.23]/v1/credentials",
            "http://[fd00:ec2::254]/v1/credentials",
        ] {
            assert!(asking.check_url(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn metadata_services_are_recognised_behind_translators_and_tunnels() {
        let pod = ImportPolicy::for_pod(&HashMap::<String, String>::new(), true);
        for ip in [
            // Mapped, compatible and translated addresses (RFC 2765).
            "::ffff:a9fe:a9fe",
            "::a9fe:a9fe",
            "::ffff:0:a9fe:a9fe",
            // NAT64: the well-known prefix, the local-use prefix in any layout, and a prefix of
            // the network's own.
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:ffa9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "2001:db8:a9fe:a9fe::",
            "2001:db8:a9:fea9:fe::",
            "2001:db8:1:2:3:4:a83f:8110",
            // 6to4, ISATAP, Teredo.
            "2002:a9fe:a9fe::1",
            "2001:db8::5efe:a9fe:a9fe",
            "2001::1:0:5601:5601",
        ] {
            assert!(is_metadata(ip.parse().unwrap()), "{ip}");
            let url = Url::parse(&format!("http://[{ip}]/latest/meta-data")).unwrap();
            assert!(pod.check_url(&url).is_err(), "{url}");
        }
        for ip in ["64:ff9b::c000:201", "2002:c000:201::1", "2001:db8::5601:5601", "::1"] {
            assert!(!is_metadata(ip.parse().unwrap()), "{ip}");
        }
    }
}
