//! Real NBD servers: `qemu-nbd` and `nbdkit`.

use std::ffi::OsString;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::fail::OrFail;
use crate::tools;
use crate::wait;

/// A running server on a Unix socket. It is killed when dropped.
pub struct NbdServer {
    child: Child,
    folder: TempDir,
}

impl NbdServer {
    /// Starts `qemu-nbd` with these arguments on a Unix socket, for up to eight clients at a time.
    pub fn qemu<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start(|socket| {
            let mut command = Command::new(tools::find("qemu-nbd"));
            command.args(["--persistent", "--shared=8", "--read-only"]);
            command.arg("--socket").arg(socket);
            command.args(args.into_iter().map(Into::into));
            command
        })
    }

    /// Starts `nbdkit` with these arguments on a Unix socket.
    pub fn nbdkit<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start(|socket| {
            let mut command = Command::new(tools::find("nbdkit"));
            command.args(["--foreground", "--exit-with-parent", "--readonly", "--unix"]);
            command.arg(socket);
            command.args(args.into_iter().map(Into::into));
            command
        })
    }

    fn start(command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for a socket");
        let child = command(&folder.path().join("socket"))
            .stdin(Stdio::null())
            .spawn()
            .or_fail("start the NBD server");
        let mut server = Self { child, folder };
        wait::until(
            || "the NBD server does not listen",
            || {
                let ended = server.child.try_wait().or_fail("look at the NBD server");
                assert!(ended.is_none(), "the NBD server ended: {ended:?}");
                UnixStream::connect(server.socket()).is_ok()
            },
        );
        server
    }

    /// The path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The URI of the export `name`.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }

    /// Ends the server.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        // The server may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A running `qemu-nbd` on a loopback port. It is killed when dropped.
pub struct TcpNbdServer {
    child: Child,
    port: u16,
}

impl TcpNbdServer {
    /// Starts `qemu-nbd` with these arguments.
    pub fn qemu<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .or_fail("a free port")
            .port();
        let mut child = Command::new(tools::find("qemu-nbd"))
            .args(["--persistent", "--shared=8", "--read-only", "--bind=127.0.0.1"])
            .args(["--port", &port.to_string()])
            .args(args.into_iter().map(Into::into))
            .stdin(Stdio::null())
            .spawn()
            .or_fail("start qemu-nbd");
        wait::until(
            || "qemu-nbd does not listen",
            || {
                let ended = child.try_wait().or_fail("look at qemu-nbd");
                assert!(ended.is_none(), "qemu-nbd ended: {ended:?}");
                TcpStream::connect(("127.0.0.1", port)).is_ok()
            },
        );
        Self { child, port }
    }

    /// The URI of the export `name`.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd://127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for TcpNbdServer {
    fn drop(&mut self) {
        // The server may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
