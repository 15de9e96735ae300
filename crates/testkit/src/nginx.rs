//! nginx on loopback: a server as people run it.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::cluster::servers::Server;
use crate::fail::OrFail;
use crate::process::Program;
use crate::{ports, tools};

/// A running nginx; stopped when dropped.
pub struct Nginx {
    address: SocketAddr,
    _server: Server,
}

impl Nginx {
    /// Serves plain HTTP with these `directives` of a `server` block, or HTTPS if `tls`: with `server.crt` and `server.key` in
    /// `folder`, where all relative paths begin, and which takes nginx's own files.
    pub fn start(folder: &Path, tls: bool, directives: &str) -> Self {
        let [address] = ports::free();
        let configuration = configuration(address, tls, directives);
        std::fs::write(folder.join("nginx.conf"), configuration).or_fail("nginx.conf");
        let program =
            Program::new(tools::find("nginx")).args(["-e", "stderr", "-c", "nginx.conf", "-p"]).arg(folder);
        let server = Server::start(program, || TcpStream::connect(address).is_ok());
        Self { address, _server: server }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// One process, as the user who runs the test: its folder is readable by no other.
fn configuration(address: SocketAddr, tls: bool, directives: &str) -> String {
    let tls = if tls { "ssl; ssl_certificate server.crt; ssl_certificate_key server.key" } else { "" };
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
