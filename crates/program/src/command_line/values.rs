//! Parsers for values on command lines.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::quantity;

/// The default of a server's `--listen`, which is reachable only from this machine.
pub const LISTEN: &str = "127.0.0.1:8443";

/// Parses an address to listen on, `ADDRESS:PORT`. An empty address means all addresses.
pub fn listen(text: &str) -> Result<(String, u16), String> {
    let (address, port) = text.rsplit_once(':').ok_or("use ADDRESS:PORT")?;
    let port =
        port.parse().map_err(|_| format!("{port:?} is not a port: use a number up to 65535"))?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Ok((address.to_owned(), port))
}

/// Returns the URL with which a client on this machine reaches a server that listens on `address`.
pub fn server_url(address: SocketAddr) -> String {
    // The URL contains a number instead of `localhost`, which resolves to both an IPv4 and an IPv6
    // address: another server might listen on the same port of the other address. Our self-signed
    // certificates cover both addresses.
    let host = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// Parses the path of an existing directory in which this process can create files.
pub fn writable_folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "the directory does not exist: create it first".to_owned(),
        _ => error.to_string(),
    })?;
    if !metadata.is_dir() {
        return Err("it is not a directory: choose one".to_owned());
    }
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        access(&path, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|errno| io::Error::from(errno).to_string())?;
    }
    Ok(path)
}

/// Parses a count of at least one, such as a number of threads.
pub fn at_least_one(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "use a whole number, at least 1")
}

/// Parses a count that may be zero, such as a number of retries.
pub fn whole_number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "use a whole number, such as 3")
}

/// A duration of at least one second: a whole number followed by `s`, `m` or `h`. A number without
/// a unit is in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationValue(pub Duration);

/// The units of a [`DurationValue`] and their length in seconds.
const UNITS: [(&str, u64); 3] = [("h", 3600), ("m", 60), ("s", 1)];

impl FromStr for DurationValue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text.get(digits.len()..).filter(|unit| !unit.is_empty());
        let known = UNITS.into_iter().find(|&(name, _)| name == unit.unwrap_or("s"));
        let (Some((_, seconds)), Ok(number)) = (known, digits.parse::<u64>()) else {
            return Err("use a whole number with s, m or h");
        };
        match number.checked_mul(seconds) {
            Some(0) => Err("at least one second is needed"),
            Some(seconds) => Ok(Self(Duration::from_secs(seconds))),
            None => Err("that is too long"),
        }
    }
}

impl fmt::Display for DurationValue {
    /// Formats the duration in the largest unit of which it is a whole multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let unit = UNITS.into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
        let (name, unit) = unit.unwrap_or(("s", 1));
        write!(f, "{}{name}", seconds / unit)
    }
}

/// Parses a rate in bytes per second: a whole number with an optional suffix K, M or G, or a
/// Kubernetes quantity with a binary suffix. All suffixes are powers of 1024, so `10M` equals
/// `10Mi`.
pub fn byte_rate(text: &str) -> Result<NonZeroU64, String> {
    let not_zero = |bytes| {
        NonZeroU64::new(bytes).ok_or_else(|| {
            "the rate must not be zero: leave the option out for no limit".to_owned()
        })
    };
    if text.ends_with('i') {
        return not_zero(quantity::parse_bytes(text)?);
    }
    let shift = match text.chars().last() {
        Some('K' | 'k') => 10,
        Some('M' | 'm') => 20,
        Some('G' | 'g') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { text.get(..text.len() - 1).unwrap_or_default() };
    let number: u64 =
        digits.parse().map_err(|_| "use a whole number with an optional K, M or G")?;
    not_zero(number.checked_mul(1 << shift).ok_or("the rate is too large")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // `mistakes/values.snap` of the importer has the refusals with their sentences.
    #[test]
    fn values_accept_common_spellings() {
        assert_eq!(at_least_one("4").map(NonZeroUsize::get), Ok(4));
        assert!(at_least_one("-1").is_err() && at_least_one("").is_err());
        assert_eq!(whole_number("0"), Ok(0));
        assert!(whole_number("-1").is_err() && whole_number("1.5").is_err());
        assert_eq!(listen("[::1]:0").unwrap(), ("::1".to_owned(), 0));
        assert_eq!(listen(":8443").unwrap(), (String::new(), 8443));
        assert!(listen("localhost").is_err() && listen("localhost:x").is_err());
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(text.parse::<DurationValue>().unwrap().0.as_secs(), seconds);
        }
        for text in ["", "m", "-1s", "18446744073709551615h"] {
            text.parse::<DurationValue>().unwrap_err();
        }
        // Durations are shown as they are written.
        for text in ["1s", "90s", "10m", "90m", "2h"] {
            assert_eq!(text.parse::<DurationValue>().unwrap().to_string(), text);
        }
        for (text, bytes) in [
            ("1", Some(1)),
            ("512K", Some(512 << 10)),
            ("3m", Some(3 << 20)),
            ("2G", Some(2 << 30)),
            ("512Ki", Some(512 << 10)),
            ("1.5Mi", Some(3 << 19)),
            ("", None),
            ("K", None),
            ("0M", None),
            ("0Mi", None),
            ("-1", None),
            ("1.5M", None),
            ("1T", None),
            ("é", None),
            ("99999999999999999999", None),
            ("18446744073709551615G", None),
        ] {
            assert_eq!(byte_rate(text).ok().map(NonZeroU64::get), bytes, "{text}");
        }
    }

    #[test]
    fn a_url_has_brackets_around_an_ipv6_address() {
        for (address, url_of_it) in [
            ("[::1]:1", "https://[::1]:1"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:1", "https://[::1]:1"),
            ("192.0.2.1:1", "https://192.0.2.1:1"),
        ] {
            assert_eq!(server_url(address.parse().unwrap()), url_of_it);
        }
    }
}
