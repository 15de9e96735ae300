//! The programs behind the stores, which `testkit/objects/build` installs.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{ACCESS_KEY, Kind, SECRET_KEY};
use crate::fail::OrFail;
use crate::process::{Program, Running, lasting};
use crate::wait;

/// Time that a store may take until it listens; alone it takes a second.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// More than any test takes: stores are ended with the process that started them.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Starts the program; `data` takes what it stores.
pub(super) fn start(kind: Kind, data: &Path) -> (SocketAddr, Running) {
    let folder = installed();
    let [address] = crate::ports::free();
    let port = address.port().to_string();
    let python = Program::new(folder.join("python/bin/python3"));
    let program = match kind {
        Kind::Moto => python.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port]),
        Kind::Gcs => python.arg(scripts().join("gcs.py")).arg(&port),
        Kind::S3s => Program::new(folder.join("s3s-fs"))
            .args(["--host", "127.0.0.1", "--port", &port])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(data),
    };
    let running = lasting::start(program.timeout(LIFE));
    let complaint = || format!("{kind:?} does not listen:\n{}", running.stderr_so_far());
    wait::until(START_PATIENCE, complaint, || {
        assert!(!running.has_ended(), "{}", complaint());
        TcpStream::connect(address).is_ok()
    });
    (address, running)
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("objects")
}

/// The folder with the programs, which are installed if they were not yet. CI does that before it runs tests.
fn installed() -> PathBuf {
    let script = scripts().join("build");
    let built = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .or_fail(script.display());
    assert!(built.status.success(), "{} failed, see above", script.display());
    String::from_utf8_lossy(&built.stdout).trim().into()
}
