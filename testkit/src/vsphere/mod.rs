//! vSphere, simulated by VMware's own library or scripted, and a plugin of nbdkit that stands in for the library that reads its disks.

pub mod tracked;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::fail::OrFail;
use crate::tools;

/// A virtual machine with one disk and two snapshots, "first" and below it "second".
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    /// The name of its object.
    pub moref: String,
    /// The uuid of its BIOS.
    pub uuid: String,
    /// The uuid of its instance.
    pub instance_uuid: String,
    /// The file of its disk.
    pub disk: String,
    /// The object of the snapshot "second".
    pub snapshot: String,
}

/// A running vSphere that knows the user `user` with the password `secret`; ends when dropped.
pub struct Vsphere {
    child: Child,
    url: String,
    thumbprint: String,
    machines: Vec<Machine>,
}

/// Machines in its two data centres.
const MACHINES: usize = 8;

impl Vsphere {
    /// Starts it; builds it first, if it was never built on this machine.
    pub fn start() -> Self {
        let mut child = Command::new(tools::built("vsphere"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .or_fail("start the simulator of vSphere");
        let output = child.stdout.take().or_fail("the output of the simulator");
        let mut lines = BufReader::new(output).lines();
        let mut line = || {
            let line = lines.next().or_fail("the simulator of vSphere ended");
            line.or_fail("read what the simulator says")
        };
        let (url, thumbprint) = (line(), line().replace(' ', ":"));
        let machines = (0..MACHINES)
            .map(|_| serde_json::from_str(&line()).or_fail("a machine of the simulator"))
            .collect();
        Self {
            child,
            url,
            thumbprint,
            machines,
        }
    }

    /// `https://127.0.0.1:port`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The SHA-1 thumbprint of its certificate, with colons.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// All machines: the first half lies in the first data centre.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }
}

impl Drop for Vsphere {
    fn drop(&mut self) {
        // At the end of its input it ends, and leaves no files.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Builds the plugin in `folder`.
pub fn build_plugin(folder: &Path) -> PathBuf {
    let header = Path::new("/usr/include/nbdkit-plugin.h");
    assert!(
        header.exists(),
        "this test needs {}: apt-get install nbdkit-plugin-dev",
        header.display()
    );
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("vddk/plugin.c");
    let plugin = folder.join("nbdkit-vddk-plugin.so");
    let args = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o"].map(Into::into);
    tools::run("gcc", args.into_iter().chain([plugin.clone(), source]));
    plugin
}

/// Puts below `root` what a side-car image with VMware's library brings to `/opt`, with the plugin in its place; `config` is for the
/// plugin.
pub fn bring_library(root: &Path, config: &str) {
    for folder in ["opt/testing", "opt/vmware-vix-disklib-distrib/lib64", "vddk-args"] {
        std::fs::create_dir_all(root.join(folder)).or_fail(folder);
    }
    let plugin = build_plugin(&root.join("opt/testing"));
    std::fs::rename(plugin, root.join("opt/testing/libvddk-test-plugin.so")).or_fail("the plugin");
    std::fs::write(root.join("vddk-args/vddk-config-file"), config).or_fail("the configuration");
}
