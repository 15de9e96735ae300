//! Runs oVirt's real image server, `ovirt-imageio`, on loopback and as an ordinary user.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::certs::Authority;
use crate::fail::OrFail;
use crate::process::{Program, Running, lasting};
use crate::tools;
use crate::wait;

/// Time after which an unused ticket expires.
const TICKET_SECONDS: u32 = 300;

/// A running daemon. When dropped, it ends together with the programs that serve its images.
#[derive(Debug)]
pub struct Daemon {
    scheme: &'static str,
    images: SocketAddr,
    control: SocketAddr,
    folder: TempDir,
    programs: Mutex<Vec<Killed>>,
}

/// A program that is killed when dropped.
struct Killed(Option<Running>);

impl std::fmt::Debug for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {:?}", self.0.as_ref().map(Running::id))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.signal(Signal::KILL);
            running.wait();
        }
    }
}

impl Daemon {
    /// Starts a daemon, over HTTPS if there is an `authority` to sign its certificate. The first
    /// start on a machine builds it.
    pub fn start(authority: Option<&Authority>) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        configure(folder.path(), authority);
        let program = Program::new(program()).arg("-c").arg(folder.path());
        let running = lasting::start(program);
        running.wait_for_line("Ready for requests");
        let log = running.stderr_so_far();
        Self {
            scheme: if authority.is_some() { "https" } else { "http" },
            images: listening(&log, "remote.service"),
            control: listening(&log, "control.service"),
            folder,
            programs: Mutex::new(vec![Killed(Some(running))]),
        }
    }

    /// The address at which tickets are valid, without a trailing slash.
    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.images)
    }

    /// Makes a ticket for these bytes. As on a host of oVirt, a raw disk is served by `qemu-nbd`,
    /// which reports its extents; an image in another format is read as a plain file.
    pub(super) fn add_ticket(&self, id: &str, format: &str, bytes: &Bytes) {
        // Each engine numbers its tickets from the start, so ids repeat. A running number keeps
        // the daemon from finding the file or socket of an earlier ticket.
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let file = self.folder.path().join(format!("{id}-{number}"));
        write_sparse(&file, bytes);
        let url = match format {
            "raw" => format!("nbd:unix:{}", self.export(&file).display()),
            _ => format!("file://{}", file.display()),
        };
        let ticket = json!({"uuid": id, "size": bytes.len(), "ops": ["read"], "timeout": TICKET_SECONDS, "url": url, "sparse": true});
        let answer = self.control("PUT", id, &ticket.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "a ticket for {url}: {answer}");
    }

    /// Removes a ticket. If the daemon replies that the ticket is still in use, it refuses further
    /// requests with it.
    pub(super) fn remove_ticket(&self, id: &str) {
        let answer = self.control("DELETE", id, "");
        let removed =
            ["HTTP/1.1 204", "HTTP/1.1 409"].iter().any(|status| answer.starts_with(status));
        assert!(removed, "the ticket {id}: {answer}");
    }

    /// Serves `file` on a Unix socket of its own.
    fn export(&self, file: &Path) -> PathBuf {
        let socket = file.with_extension("sock");
        let program = Program::new(tools::find("qemu-nbd"))
            .args(["--persistent", "--read-only", "--shared=8", "--format=raw", "--socket"])
            .arg(&socket)
            .arg(file);
        let running = lasting::start(program);
        self.programs.lock().ok().or_fail("the programs").push(Killed(Some(running)));
        wait::until(|| "qemu-nbd does not listen", || socket.exists());
        socket
    }

    fn control(&self, method: &str, id: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.control).or_fail("the daemon's control socket");
        let length = body.len();
        let request = format!(
            "{method} /tickets/{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).or_fail("ask the daemon");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).or_fail("the daemon's answer");
        answer
    }
}

/// Writes `bytes` to a file, leaving holes for zeros. `qemu-nbd` reports holes as extents.
fn write_sparse(file: &Path, bytes: &[u8]) {
    const BLOCK_BYTES: usize = 64 * 1024;
    let output = std::fs::File::create(file).or_fail(file.display());
    output.set_len(bytes.len() as u64).or_fail(file.display());
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            let offset = (number * BLOCK_BYTES) as u64;
            std::os::unix::fs::FileExt::write_all_at(&output, block, offset)
                .or_fail(file.display());
        }
    }
}

fn configure(folder: &Path, authority: Option<&Authority>) {
    let tls = match authority {
        None => "enable = false".to_owned(),
        Some(authority) => {
            let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
            let files = [("server.crt", certificate), ("server.key", key)].map(|(name, pem)| {
                let file = folder.join(name);
                std::fs::write(&file, pem).or_fail(name);
                file.display().to_string()
            });
            format!("enable = true\ncert_file = {}\nkey_file = {}", files[0], files[1])
        }
    };
    let run = folder.display();
    let text = format!(
        "[daemon]\nrun_dir = {run}\ndrop_privileges = false\nsystemd_enable = false\npoll_interval = 0.1\n\
         [tls]\n{tls}\n[remote]\nhost = 127.0.0.1\nport = 0\n[local]\nenable = false\n\
         [control]\ntransport = tcp\nport = 0\nremove_timeout = 1\n[handlers]\nkeys = stderr\n[logger_root]\nhandlers = stderr\n"
    );
    std::fs::create_dir(folder.join("conf.d")).or_fail("a folder");
    std::fs::write(folder.join("conf.d/test.conf"), text).or_fail("the daemon's configuration");
}

/// Finds the address of a service in the log: `NAME listening on ('127.0.0.1', 35149)`.
fn listening(log: &str, service: &str) -> SocketAddr {
    let line = log
        .lines()
        .find_map(|line| line.split_once(&format!("{service} listening on ('127.0.0.1', ")));
    let port = line.and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok());
    SocketAddr::from(([127, 0, 0, 1], port.or_fail(format!("{service} in {log}"))))
}

/// The path of the daemon's program, which is looked up once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| tools::built("imageio"))
}
