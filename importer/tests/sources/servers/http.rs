//! nginx.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::process::{Program, Running};
use testkit::tools;

use super::{Server, password_options};

const USER: &str = "alice";
const PASSWORD: &str = "correct horse";

/// nginx with one file, behind a gateway.
pub(crate) struct Http {
    gateway: Gateway,
    folder: TempDir,
    nginx: Option<Running>,
    is_guarded: bool,
}

impl Http {
    fn serve(object: &[u8], faults: Vec<Fault>, is_guarded: bool) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for nginx");
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).or_fail(name);
        write("object", object);
        write("passwords", format!("{USER}:{{PLAIN}}{PASSWORD}\n").as_bytes());
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .or_fail("a free port")
            .port();
        write("nginx.conf", configuration(port, is_guarded).as_bytes());
        let nginx = Program::new(tools::find("nginx"))
            .args(["-e", "stderr", "-c", "nginx.conf", "-p"])
            .arg(folder.path())
            .timeout(Duration::from_secs(600))
            .start();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "nginx does not listen: {}",
                nginx.stderr_so_far()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let address = ([127, 0, 0, 1], port).into();
        Self {
            gateway: Gateway::start(address, Plan::of(faults)).or_fail("a gateway"),
            folder,
            nginx: Some(nginx),
            is_guarded,
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some(nginx) = self.nginx.take() {
            nginx.signal(rustix::process::Signal::TERM);
            nginx.wait();
        }
    }
}

impl Server for Http {
    const NAME: &'static str = "http";

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self::serve(object, faults, false)
    }

    fn source(&self) -> Vec<String> {
        vec![self.gateway.url("/object")]
    }

    fn options(&self, folder: &Path) -> Vec<String> {
        if self.is_guarded {
            password_options(folder, USER, PASSWORD)
        } else {
            Vec::new()
        }
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let text = "expected status code 200, got 404. Status: 404 Not Found";
        (vec![self.gateway.url("/nothing")], text)
    }

    fn start_guarded(object: &[u8]) -> Self {
        Self::serve(object, Vec::new(), true)
    }

    fn lock_out(&self) -> &'static str {
        let file = self.folder.path().join("passwords");
        std::fs::write(file, format!("{USER}:{{PLAIN}}another\n")).or_fail("another password");
        "expected status code 200, got 401. Status: 401 Unauthorized"
    }
}

/// One process, as whoever runs the test.
fn configuration(port: u16, is_guarded: bool) -> String {
    let guard = if is_guarded {
        "auth_basic closed; auth_basic_user_file passwords;"
    } else {
        ""
    };
    format!(
        "daemon off; master_process off; pid nginx.pid;
        events {{}}
        http {{
            access_log off; client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp;
            uwsgi_temp_path tmp; scgi_temp_path tmp;
            server {{ listen 127.0.0.1:{port}; root .; {guard} }}
        }}"
    )
}
