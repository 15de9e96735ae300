//! HTTPS requests from the node to a pod, as kubelet's probes and CDI's controllers send them:
//! without verifying certificates.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};

use crate::PORT;
use crate::network::Network;

/// Sends GET `path` to the pod with the address `pod`.
pub fn get(network: &Network, pod: Ipv4Addr, path: &str) -> io::Result<Response> {
    let config = https::tls::insecure_client_config().or_fail("TLS without verification");
    let tcp = network.connect(SocketAddr::from((pod, PORT)))?;
    let mut connection = Connection::over(tcp, pod.into(), &Arc::new(config))?;
    connection.exchange(&Request::new("GET", path), &[])
}

/// Returns the progress in percent that the controllers find in a scrape. They use the text after
/// the metric's name, its only label and one space, as far as the regular expression
/// `\d{1,3}\.?\d*` matches it (contract §0.7). Returns `None` if they find nothing.
pub fn progress(scrape: &str, metric: &str, owner: &str) -> Option<f64> {
    let series = format!("{metric}{{ownerUID=\"{owner}\"}} ");
    let number = scrape.split(&series).nth(1)?;
    let whole = number.bytes().take(3).take_while(u8::is_ascii_digit).count();
    let (whole, rest) = number.split_at(whole);
    let point = usize::from(rest.starts_with('.'));
    let digits = rest.bytes().skip(point).take_while(u8::is_ascii_digit).count();
    format!("{whole}{}", rest.get(..point + digits).unwrap_or_default()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_read_as_the_controllers_do() {
        let found = |scrape| progress(scrape, "m", "u");
        assert_eq!(found("# HELP m x\nm{ownerUID=\"u\"} 37.25\n"), Some(37.25));
        assert_eq!(found("m{ownerUID=\"u\"} 100\n"), Some(100.0));
        // Controllers misread exponents and do not find series with further labels, so workers
        // must print neither.
        assert_eq!(found("m{ownerUID=\"u\"} 5e-05\n"), Some(5.0));
        assert_eq!(found("m{ownerUID=\"u\",pod=\"p\"} 5\n"), None);
        assert_eq!(found("m{ownerUID=\"other\"} 5\n"), None);
        assert_eq!(found("m{ownerUID=\"u\"} NaN\n"), None);
    }
}
