//! NBD URIs: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>.

use std::fmt;
use std::path::{Path, PathBuf};

use fetch::error::invalid_error;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use stream::error::SourceError;
use url::{Host, Url};

use super::wire::MAX_STRING_BYTES;

/// The port that IANA assigned to NBD.
const DEFAULT_PORT: u16 = 10809;

/// Name that the certificate of a server behind a Unix socket must be issued for, unless the URI
/// specifies another one.
const LOCAL_NAME: &str = "localhost";

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NbdAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    pub(super) address: NbdAddress,
    /// Name of the export; empty for the default export.
    pub(super) export: String,
    /// Name that the server's certificate must be issued for; `None` without TLS.
    pub(super) tls_name: Option<String>,
}

impl NbdUri {
    /// Parses `nbd://host[:port]/export`, `nbds://…`, `nbd+unix:///export?socket=/path` or
    /// `nbds+unix:///…`. The parameter `tls-hostname` specifies the name to verify, if it differs
    /// from the host.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        parse_uri(text)
            .map_err(|reason| invalid_error(format!("unable to parse the NBD URI: {reason}")))
    }

    /// Creates the URI of the default export of the server at the Unix socket `path`, without TLS.
    pub(crate) fn from_unix_path(path: &Path) -> Self {
        Self { address: NbdAddress::Unix(path.to_owned()), export: String::new(), tls_name: None }
    }
}

fn parse_uri(text: &str) -> Result<NbdUri, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let (tls, unix) = match url.scheme() {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        other => {
            return Err(format!("the scheme {other} is not nbd, nbds, nbd+unix or nbds+unix"));
        }
    };
    let parameter = |name: &str| {
        url.query_pairs().find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    };
    // In the URL standard `nbd` is not a special scheme, so its hosts stay percent-encoded.
    let host = url.host().map(|host| match host {
        Host::Domain(name) => percent_decode_str(name).decode_utf8_lossy().into_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    });
    let host = host.filter(|host| !host.is_empty());
    let address = match (unix, parameter("socket"), host.clone()) {
        (true, Some(socket), None) if !socket.is_empty() => NbdAddress::Unix(socket.into()),
        (true, _, Some(host)) => {
            return Err(format!("a Unix socket has no host, but {host} is given"));
        }
        (true, _, None) => return Err("it lacks the path of the Unix socket: ?socket=PATH".into()),
        (false, Some(_), _) => {
            return Err("?socket=PATH needs the scheme nbd+unix or nbds+unix".into());
        }
        (false, None, None) => return Err("it lacks the host".into()),
        (false, None, Some(host)) => {
            NbdAddress::Tcp { host, port: url.port().unwrap_or(DEFAULT_PORT) }
        }
    };
    let export = percent_decode_str(url.path().strip_prefix('/').unwrap_or_default())
        .decode_utf8()
        .map_err(|_| "the export name is not UTF-8")?
        .into_owned();
    if export.len() > MAX_STRING_BYTES {
        return Err(format!(
            "the export name has {} bytes, the limit is {MAX_STRING_BYTES}",
            export.len()
        ));
    }
    let tls_name =
        tls.then(|| parameter("tls-hostname").or(host).unwrap_or_else(|| LOCAL_NAME.to_owned()));
    Ok(NbdUri { address, export, tls_name })
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls_name.is_some() { "nbds" } else { "nbd" };
        let export = utf8_percent_encode(&self.export, NON_ALPHANUMERIC);
        match &self.address {
            NbdAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}/{export}")
            }
            NbdAddress::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}/{export}"),
            NbdAddress::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}?socket={}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str, tls_name: Option<&str>) -> NbdUri {
        NbdUri {
            address: NbdAddress::Tcp { host: host.into(), port },
            export: export.into(),
            tls_name: tls_name.map(str::to_owned),
        }
    }

    #[test]
    fn hosts_ports_and_exports_are_parsed() {
        for (text, expected) in [
            ("nbd://host", tcp("host", 10809, "", None)),
            ("nbd://host/", tcp("host", 10809, "", None)),
            ("nbd://10.0.0.1:1234/disk%201", tcp("10.0.0.1", 1234, "disk 1", None)),
            ("nbd://host//a/b", tcp("host", 10809, "/a/b", None)),
            ("nbds://[::1]/x", tcp("::1", 10809, "x", Some("::1"))),
            (
                "nbds://user@10.0.0.1/?tls-hostname=disks.example",
                tcp("10.0.0.1", 10809, "", Some("disks.example")),
            ),
            ("nbd+unix:///?socket=/run/a%20b", NbdUri::from_unix_path(Path::new("/run/a b"))),
        ] {
            assert_eq!(NbdUri::parse(text).unwrap(), expected, "{text}");
        }
        let local = NbdUri::parse("nbds+unix:///?socket=/s").unwrap();
        assert_eq!(local.tls_name.as_deref(), Some("localhost"));
    }

    #[test]
    fn incomplete_uris_are_refused_with_the_reason() {
        let long = format!("nbd://host/{}", "a".repeat(4097));
        for (text, reason) in [
            ("nbd:///export", "lacks the host"),
            ("nbd://host/?socket=/s", "nbd+unix"),
            ("nbd+unix:///export", "?socket=PATH"),
            ("nbd+unix://host/?socket=/s", "a Unix socket has no host"),
            ("nbd://host/%ff", "not UTF-8"),
            (long.as_str(), "4097 bytes"),
            ("http://host/", "scheme http"),
        ] {
            let message = NbdUri::parse(text).unwrap_err().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn a_printed_uri_can_be_parsed_again_and_has_no_user() {
        for text in ["nbd://user@host/a%20b", "nbds://[::1]:5/x", "nbd+unix:///x?socket=/run/s"] {
            let uri = NbdUri::parse(text).unwrap();
            let printed = uri.to_string();
            assert!(!printed.contains("user"), "{printed}");
            assert_eq!(NbdUri::parse(&printed).unwrap(), uri);
        }
    }
}
