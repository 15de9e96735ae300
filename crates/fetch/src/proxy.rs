//! Selection of proxies by the rules of Go's `golang.org/x/net/http/httpproxy`, which existing CDI
//! installations are configured for.

use std::net::IpAddr;

use stream::error::SourceError;
use url::{Host, Url};

use crate::address::with_scheme;
use crate::error::invalid_error;

/// Proxies by URL scheme, and the hosts that are reached directly. The default uses no proxy.
#[derive(Clone, Default)]
pub struct ProxyConfig {
    http: Option<Url>,
    https: Option<Url>,
    direct: Vec<NoProxyRule>,
}

impl ProxyConfig {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`; each takes precedence over its lower-case
    /// form. `lookup` returns the value of a variable.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SourceError> {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let either = |name: &str| value(name).or_else(|| value(&name.to_ascii_lowercase()));
        let proxy = |name: &str| either(name).map(|text| parse_proxy(name, &text)).transpose();
        // In a CGI process HTTP_PROXY may be a request header sent by an attacker
        // (golang.org/s/cgihttpproxy).
        let is_cgi = value("REQUEST_METHOD").is_some();
        Ok(Self {
            http: if is_cgi { None } else { proxy("HTTP_PROXY")? },
            https: proxy("HTTPS_PROXY")?,
            direct: either("NO_PROXY").map(|list| parse_no_proxy(&list)).unwrap_or_default(),
        })
    }

    /// Returns the proxy for a request to `url`, with its credentials as user-info; `None` means a
    /// direct connection.
    pub fn proxy_for(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        }?;
        let (host, port) = (url.host()?, url.port_or_known_default()?);
        let ip = host_ip(&host);
        let is_direct =
            is_local(&host) || self.direct.iter().any(|rule| rule.matches_host(&host, ip, port));
        (!is_direct).then_some(proxy)
    }
}

/// True for the local machine, which is reached without a proxy and without the network.
pub(super) fn is_local(host: &Host<&str>) -> bool {
    *host == Host::Domain("localhost") || host_ip(host).is_some_and(|ip| ip.is_loopback())
}

fn host_ip(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(ip) => Some(IpAddr::V4(*ip)),
        Host::Ipv6(ip) => Some(IpAddr::V6(*ip).to_canonical()),
    }
}

impl std::fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host =
            |url: &Option<Url>| url.as_ref().and_then(|url| url.host_str().map(str::to_owned));
        f.debug_struct("ProxyConfig")
            .field("http", &host(&self.http))
            .field("https", &host(&self.https))
            .field("direct", &self.direct)
            .finish()
    }
}

fn parse_proxy(name: &str, text: &str) -> Result<Url, SourceError> {
    // The value may hold a password, so errors do not repeat it.
    let refused =
        |reason: String| invalid_error(format!("invalid proxy address in {name}: {reason}"));
    let mut url = Url::parse(&with_scheme(text)).map_err(|error| refused(error.to_string()))?;
    if url.scheme() == "socks5" {
        // As in Go, the proxy resolves host names; here the scheme socks5h selects that. Setting
        // it cannot fail.
        url.set_scheme("socks5h").ok();
    }
    match url.scheme() {
        "http" | "https" | "socks5h" => Ok(url),
        other => Err(refused(format!("scheme {other} is not http, https or socks5"))),
    }
}

/// One entry of `NO_PROXY`. A port of `None` matches any port.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoProxyRule {
    Everything,
    Network(IpAddr, u8),
    Address(IpAddr, Option<u16>),
    /// Hosts whose names end in `suffix`, which begins with a dot; also the bare domain if
    /// `itself` is true.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

fn parse_no_proxy(list: &str) -> Vec<NoProxyRule> {
    list.split(',')
        .filter_map(|entry| NoProxyRule::parse(&entry.trim().to_ascii_lowercase()))
        .collect()
}

impl NoProxyRule {
    /// Parses an entry in lower case. Malformed entries are ignored, as in Go.
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::Everything);
        }
        if let Some(network) = parse_network(entry) {
            return Some(network);
        }
        if let Ok(ip) = entry.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(Self::Address(ip.to_canonical(), None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(Self::Address(ip.to_canonical(), port));
        }
        let host = if host.starts_with("*.") { &host[1..] } else { host };
        let itself = !host.starts_with('.');
        let name = host.trim_start_matches('.');
        // Internationalised names are compared in the form that the URL parser produces.
        let Ok(Host::Domain(name)) = Host::parse(name) else {
            return None;
        };
        Some(Self::Domain { suffix: format!(".{name}"), itself, port })
    }

    fn matches_host(&self, host: &Host<&str>, ip: Option<IpAddr>, port: u16) -> bool {
        let same_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match (self, host) {
            (Self::Everything, _) => true,
            (Self::Network(network, bits), _) => {
                ip.is_some_and(|ip| is_within(ip, *network, *bits))
            }
            (Self::Address(address, wanted), _) => ip == Some(*address) && same_port(wanted),
            (Self::Domain { suffix, itself, port: wanted }, Host::Domain(name)) => {
                let matches = name.ends_with(suffix.as_str()) || (*itself && *name == &suffix[1..]);
                matches && same_port(wanted)
            }
            (Self::Domain { .. }, _) => false,
        }
    }
}

fn parse_network(entry: &str) -> Option<NoProxyRule> {
    let (network, bits) = entry.split_once('/')?;
    let (network, bits): (IpAddr, u8) = (network.parse().ok()?, bits.parse().ok()?);
    let width = if network.is_ipv4() { 32 } else { 128 };
    (bits <= width).then_some(NoProxyRule::Network(network, bits))
}

fn is_within(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let shift = 32 - u32::from(bits);
            (ip.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let shift = 128 - u32::from(bits);
            (ip.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_for(env: &[(&str, &str)], url: &str) -> Option<String> {
        let lookup =
            |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let config = ProxyConfig::from_env(lookup).unwrap();
        config.proxy_for(&Url::parse(url).unwrap()).map(|url| url.to_string())
    }

    #[test]
    fn scheme_and_variable_choose_the_proxy() {
        let proxy = |host: &str| Some(format!("http://{host}/"));
        for (env, url, expected) in [
            (vec![], "http://a.com/", None),
            (vec![("HTTP_PROXY", "p:3128")], "http://a.com/", proxy("p:3128")),
            (vec![("HTTP_PROXY", "p:3128")], "https://a.com/", None),
            (vec![("https_proxy", "http://p:3128")], "https://a.com/", proxy("p:3128")),
            (vec![("http_proxy", "low"), ("HTTP_PROXY", "up")], "http://a.com/", proxy("up")),
            (vec![("http_proxy", "low"), ("HTTP_PROXY", "")], "http://a.com/", proxy("low")),
            (vec![("HTTP_PROXY", "p"), ("REQUEST_METHOD", "GET")], "http://a.com/", None),
            (vec![("HTTPS_PROXY", "p"), ("REQUEST_METHOD", "GET")], "https://a.com/", proxy("p")),
            (vec![("HTTP_PROXY", "u:pw@p:1")], "http://a.com/", proxy("u:pw@p:1")),
            (vec![("HTTP_PROXY", "10.0.0.1:3128")], "http://a.com/", proxy("10.0.0.1:3128")),
            (vec![("HTTP_PROXY", "p")], "http://localhost:8080/", None),
            (vec![("HTTP_PROXY", "p")], "http://127.9.9.9/", None),
            (vec![("HTTP_PROXY", "p")], "http://[::1]/", None),
        ] {
            assert_eq!(proxy_for(&env, url), expected, "{env:?} {url}");
        }
    }

    #[test]
    fn no_proxy_entries_match_as_in_go() {
        for (no_proxy, host, is_direct) in [
            ("a.com", "a.com", true),
            ("a.com", "www.a.com", true),
            ("a.com", "ba.com", false),
            (".a.com", "a.com", false),
            (".a.com", "www.a.com", true),
            ("*.a.com", "www.a.com", true),
            ("*.a.com", "a.com", false),
            ("A.COM", "a.com", true),
            ("b.com, a.com", "a.com", true),
            (",,", "a.com", false),
            ("*", "a.com", true),
            ("x,*", "10.0.0.1", true),
            ("a.com:80", "a.com", true),
            ("a.com:80", "a.com:8080", false),
            ("a.com:8080", "a.com:8080", true),
            ("a.com:port", "a.com", false),
            (":80", "a.com", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("0.0.0.0/0", "a.com", false),
            ("10.0.0.1/32", "10.0.0.1", true),
            ("10.0.0.0/33", "10.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.11", false),
            ("10.0.0.1:80", "10.0.0.1", true),
            ("10.0.0.1:81", "10.0.0.1", false),
            ("fd00::/8", "[fd00::5]", true),
            ("fd00::/8", "[fe80::5]", false),
            ("fd00::5", "[fd00::5]", true),
            ("[fd00::5]:80", "[fd00::5]", true),
            ("[fd00::5]:81", "[fd00::5]", false),
            ("::/0", "[fd00::5]", true),
            ("10.0.0.1", "[::ffff:10.0.0.1]", true),
            ("bücher.example", "xn--bcher-kva.example", true),
        ] {
            let env = [("HTTP_PROXY", "p"), ("NO_PROXY", no_proxy)];
            let direct = proxy_for(&env, &format!("http://{host}/")).is_none();
            assert_eq!(direct, is_direct, "{no_proxy} {host}");
        }
    }

    #[test]
    fn an_invalid_proxy_is_reported_without_its_password() {
        for value in ["ftp://u:secret@p/", "http://u:secret@p:99999/"] {
            let error =
                ProxyConfig::from_env(|name| (name == "HTTP_PROXY").then(|| value.to_owned()))
                    .unwrap_err();
            assert!(
                error.to_string().starts_with("invalid proxy address in HTTP_PROXY: "),
                "{error}"
            );
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let config = ProxyConfig::from_env(|_| Some("http://u:secret@p/".to_owned())).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
    }
}
