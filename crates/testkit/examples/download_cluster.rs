//! `download_cluster CLONER DISK MODE`: a cluster on loopback whose claim `disk` in the namespace
//! `download` is the file or device DISK, for benches. Prints a kubeconfig; ends with its stdin.

use std::io::{self, Read};
use std::path::Path;

use testkit::cluster::Cluster;
use testkit::cluster::kubelet::Kubelet;

const NAMESPACE: &str = "download";

#[allow(clippy::print_stdout, reason = "the kubeconfig is the output of this program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cloner, disk, mode] = &arguments[..] else {
        return Err("usage: download_cluster CLONER DISK Filesystem|Block".into());
    };
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start()));
    cluster.create_namespace(NAMESPACE);
    let kubelet = Kubelet::start(cluster, NAMESPACE, cloner);
    kubelet.create_claim("disk", mode, Path::new(disk));
    println!("{}", cluster.administrator().display());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
