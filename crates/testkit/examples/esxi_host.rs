//! `esxi_host DISK LATENCY_US NS_PER_BYTE [lease]`: a vSphere and its ESXi host on loopback, with
//! the raw file DISK in a snapshot, for benches. Changes are not tracked. All connections have this
//! latency in each direction and this rate. With `lease`, the snapshot can be exported as well. The
//! certificate of the authority goes to `ca.crt` beside the disk.
//!
//! Prints the URL, and after each line on stdin the number of bytes that clients have received;
//! ends with its stdin.

use std::io;
use std::path::Path;
use std::time::Duration;

use testkit::certs::{Authority, KeyKind};
use testkit::relay::{Relay, RelayPace};
use testkit::vsphere::host::EsxiHost;
use testkit::vsphere::tracked::{Tracked, file_of};

#[allow(clippy::print_stdout, reason = "URL and numbers are the output of this program")]
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [disk, latency, byte, rest @ ..] = &arguments[..] else {
        return Err("usage: esxi_host DISK LATENCY_US NS_PER_BYTE [lease]".into());
    };
    let disk = Path::new(disk);
    let pace = RelayPace {
        latency: Duration::from_micros(latency.parse()?),
        per_megabyte: Duration::from_millis(byte.parse()?),
    };
    let authority = Authority::new()?;
    std::fs::write(disk.with_file_name("ca.crt"), authority.pem())?;
    let vsphere = Tracked::start_tls(authority.server_config()?);
    vsphere.habits(|habits| habits.is_tracking = false);
    let snapshot = vsphere.checkpoint(disk).object;
    if !rest.is_empty() {
        vsphere.add_export(&snapshot, disk);
    }
    let host = EsxiHost::start(&authority.server(KeyKind::Ecdsa)?);
    host.add_disk(&file_of(&snapshot), disk);
    let port = |port| Relay::start_slow(([127, 0, 0, 1], port).into(), pace);
    let nfc = port(host.port());
    vsphere.use_host(&host, nfc.address().port());
    let soap = port(url::Url::parse(&vsphere.url())?.port().unwrap_or_default());
    println!("{}", soap.url());
    for line in io::stdin().lines() {
        line?;
        println!("{}", nfc.received() + soap.received());
    }
    Ok(())
}
