//! vSphere, simulated by VMware's own library or scripted, and an nbdkit plugin that replaces
//! VMware's library for reading disks.

pub mod host;
pub mod tracked;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::fail::OrFail;
use crate::tools;

/// A virtual machine with one disk and two snapshots: "first", and its child "second".
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    /// The ID of the machine's managed object.
    pub moref: String,
    /// The UUID of the machine's BIOS.
    pub uuid: String,
    /// The instance UUID of the machine.
    pub instance_uuid: String,
    /// The file of the machine's disk.
    pub disk: String,
    /// The ID of the managed object of the snapshot "second".
    pub snapshot: String,
}

/// A running vSphere whose only user is `user` with the password `secret`. It ends when dropped.
pub struct Vsphere {
    child: Child,
    url: String,
    thumbprint: String,
    machines: Vec<Machine>,
}

/// Number of machines in the two data centres.
const MACHINES: usize = 8;

impl Vsphere {
    /// Starts the simulator. It is built first if that has not been done on this machine.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with the certificate of the program `vcsim`, as in CDI's
    /// tests: an RSA key of 1024 bits.
    pub fn start_as_vcsim() -> Self {
        Self::start_with(&["own-certificate"])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let mut child = Command::new(tools::built("vsphere"))
            .args(arguments)
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
        Self { child, url, thumbprint, machines }
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The SHA-1 thumbprint of the server's certificate, with colons.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// All machines. The first half is in the first data centre.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }
}

impl Drop for Vsphere {
    fn drop(&mut self) {
        // The simulator ends at the end of its input, and removes its files.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Compiles a plugin from `crates/testkit/vddk`.
fn compile(source: &str, plugin: &Path) {
    let header = Path::new("/usr/include/nbdkit-plugin.h");
    assert!(
        header.exists(),
        "this test needs {}: apt-get install nbdkit-plugin-dev",
        header.display()
    );
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("vddk").join(source);
    let args = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o"].map(Into::into);
    tools::run("gcc", args.into_iter().chain([plugin.to_owned(), source]));
}

/// Installs the plugin below `root`, where a side-car image for tests puts it, together with its
/// configuration `config`. VMware's library is missing, as in CDI's image for tests.
pub fn bring_library(root: &Path, config: &str) {
    for folder in ["opt/testing", "vddk-args"] {
        std::fs::create_dir_all(root.join(folder)).or_fail(folder);
    }
    compile("plugin.c", &root.join(TEST_PLUGIN));
    std::fs::write(root.join("vddk-args/vddk-config-file"), config).or_fail("the configuration");
}

/// Like [`bring_library`], for machines without nbdkit: `qemu-nbd` serves the disk. Returns the
/// `PATH` for the importer.
pub fn bring_stand_in(root: &Path, config: &str) -> String {
    for file in [TEST_PLUGIN, "vddk-args/vddk-config-file"] {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().or_fail(file)).or_fail(file);
        // The plugin only has to exist.
        std::fs::write(path, config).or_fail(file);
    }
    replace_nbdkit(root, include_str!("../../vddk/nbdkit"))
}

/// Puts a script in place of nbdkit. Returns the `PATH` for the importer.
pub fn replace_nbdkit(root: &Path, script: &str) -> String {
    let program = root.join("bin/nbdkit");
    std::fs::create_dir_all(root.join("bin")).or_fail("bin");
    std::fs::write(&program, script).or_fail("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).or_fail("a program");
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", root.join("bin").display())
}

/// Installs below `root` what CDI's image for tests (`vddk-test`) copies to the side-car's volume,
/// and nothing else: a plugin that requires the arguments of CDI's importer, and the only disk
/// that it serves.
pub fn bring_test_image(root: &Path, disk: &Path) {
    std::fs::create_dir_all(root.join("opt/testing")).or_fail("a folder");
    compile("bare.c", &root.join(TEST_PLUGIN));
    std::fs::copy(disk, root.join(TEST_DISK)).or_fail("the disk of the side-car");
}

/// The path of the plugin in a side-car image for tests.
pub const TEST_PLUGIN: &str = "opt/testing/libvddk-test-plugin.so";

/// The path of the disk in CDI's image for tests.
pub const TEST_DISK: &str = "opt/testing/nbdtest.img";

/// The versions of the library and of the host that the plugin of [`bring_test_image`] reports.
pub const TEST_INFO: [&str; 2] = ["1.2.3", "esx.test"];
