//! The services at which a machine learns who it is. The pod asks none of them, whatever endpoint a DataVolume names and wherever a
//! server leads: their answers are the node's identity, and would end up on the disk.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use datapath::error::SourceError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::{Face, Policy};
use crate::error::invalid;

/// Amazon's, Google's, Azure's, OpenStack's and others' (all the first one), the credential services of ECS and EKS, Azure's
/// WireServer and Alibaba's.
const ADDRESSES: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Google's names for the metadata service, which a proxy might look up.
const NAMES: [&str; 2] = ["metadata.google.internal", "metadata.goog"];

impl Policy {
    /// Checks that `url` may be asked at all.
    pub fn visit(&self, url: &Url) -> Result<(), SourceError> {
        let is_metadata = match url.host() {
            Some(Host::Ipv4(ip)) => is_metadata(ip.into()),
            Some(Host::Ipv6(ip)) => is_metadata(ip.into()),
            Some(Host::Domain(name)) => NAMES.contains(&name.trim_end_matches('.')),
            None => false,
        };
        if self.face == Face::Pod && is_metadata {
            return Err(invalid(refusal(url.host_str().unwrap_or_default())));
        }
        Ok(())
    }

    /// The resolver of names, if not the usual one: other names may lead to the same addresses.
    pub fn resolver(&self) -> Option<Arc<dyn Resolve>> {
        (self.face == Face::Pod).then(|| Arc::new(Elsewhere) as Arc<dyn Resolve>)
    }
}

fn is_metadata(ip: IpAddr) -> bool {
    ADDRESSES.contains(&ip.to_canonical())
}

fn refusal(name: &str) -> String {
    format!("{name} is the metadata service of this machine, which an import does not ask")
}

/// A resolver that leaves out the addresses of metadata services.
struct Elsewhere;

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let (own, others): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|found| is_metadata(found.ip()));
            if others.is_empty() && !own.is_empty() {
                return Err(Box::<dyn Error + Send + Sync>::from(refusal(name.as_str())));
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
    fn metadata_services_are_known_however_they_are_written() {
        let pod = Policy::pod(&HashMap::<String, String>::new(), true);
        for url in [
            "http://169.254.169.254/latest/meta-data/",
            "http://169.254.169.254:80/",
            "https://2852039166/",
            "http://0xa9.0xfe.0xa9.0xfe/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://169.254.170.2/v2/credentials",
            "http://metadata.google.internal/computeMetadata/v1/",
            "http://METADATA.google.internal./",
        ] {
            let url = Url::parse(url).unwrap();
            assert!(pod.visit(&url).is_err(), "{url}");
            assert!(
                Policy::default().visit(&url).is_ok(),
                "the command line is its owner's: {url}"
            );
        }
        for url in [
            "http://169.254.20.10/",
            "http://metadata/",
            "http://metadata.google.internal.example/",
        ] {
            assert!(pod.visit(&Url::parse(url).unwrap()).is_ok(), "{url}");
        }
    }
}
