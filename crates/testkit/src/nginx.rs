//! Runs nginx on loopback, as an example of a web server in common use.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::cluster::servers::Server;
use crate::fail::OrFail;
use crate::process::Program;
use crate::{ports, tools};

/// A running nginx. It is stopped when dropped.
pub struct Nginx {
    address: SocketAddr,
    _server: Server,
}

impl Nginx {
    /// Serves plain HTTP with these `directives` in its `server` block, or HTTPS if `tls`. HTTPS
    /// needs `server.crt` and `server.key` in `folder`. Relative paths start at `folder`, where
    /// nginx also keeps its own files.
    pub fn start(folder: &Path, tls: bool, directives: &str) -> Self {
        let [address] = ports::free();
        let configuration = configuration(address, tls, directives);
        std::fs::write(folder.join("nginx.conf"), configuration).or_fail("nginx.conf");
        let program = Program::new(tools::find("nginx"))
            .args(["-e", "stderr", "-c", "nginx.conf", "-p"])
            .arg(folder);
        let server = Server::start(program, || TcpStream::connect(address).is_ok());
        Self { address, _server: server }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The configuration: a single process, run by the test's user, because no other user can read the
/// test's folder.
fn configuration(address: SocketAddr, tls: bool, directives: &str) -> String {
    let tls =
        if tls { "ssl; ssl_certificate server.crt; ssl_certificate_key server.key" } else { "" };
    format!(
        "daemon off; master_process off; pid nginx.pid;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            server {{
                listen {address} {tls};
                {directives}
            }}
        }}"
    )
}
