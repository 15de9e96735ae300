//! Starts the stores' programs, which `crates/testkit/objects/build` installs.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::{ACCESS_KEY, Kind, SECRET_KEY};
use crate::process::{Program, Running, lasting};
use crate::{ports, tools};

/// Starts the program of a store, which keeps its objects in `data` if it needs a folder.
pub(super) fn start(kind: Kind, data: &Path) -> (SocketAddr, Running) {
    let folder = tools::built("objects");
    let [address] = ports::free();
    let port = address.port().to_string();
    let python = Program::new(folder.join("python/bin/python3"));
    let program = match kind {
        Kind::Moto => python.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port]),
        Kind::Gcs => {
            python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("objects/gcs.py")).arg(&port)
        }
        Kind::S3s => Program::new(folder.join("s3s-fs"))
            .args(["--host", "127.0.0.1", "--port", &port])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(data),
    };
    let listens = |_: &str| TcpStream::connect(address).ok();
    let (_, running) = lasting::start_server(program, listens);
    (address, running)
}
