//! The two programs of a cluster without nodes: etcd and `kube-apiserver`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::certs::Authority;
use crate::fail::OrFail;
use crate::process::{Program, Running, lasting};
use crate::{ports, tools};

/// The token of the cluster's administrator, whom RBAC allows everything.
pub(super) const ADMIN_TOKEN: &str = "administrator-of-a-test";

/// A running or stopped server. It is killed when dropped.
pub(crate) struct Server {
    running: Option<Running>,
}

impl Server {
    /// Starts `program` and waits until it is `ready`. Fails the test with the program's log if it
    /// ends early or takes too long.
    pub(crate) fn start(program: Program, ready: impl Fn() -> bool) -> Self {
        let (_, running) = lasting::start_server(program, |_| ready().then_some(()));
        Self { running: Some(running) }
    }

    /// Kills the server and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.signal(Signal::KILL);
            running.wait();
        }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.running.as_ref().map(Running::stderr_so_far).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The files and addresses of a cluster.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    etcd: SocketAddr,
    pub(super) api: SocketAddr,
}

impl Place {
    /// Writes the files that the servers read: certificates, keys and the administrator's token.
    pub(super) fn prepare(folder: &Path, authority: &Authority) -> Self {
        let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
        let (account_certificate, account_key) = authority.leaf_pem().or_fail("a certificate");
        let administrator = format!("{ADMIN_TOKEN},administrator,administrator,system:masters\n");
        for (name, text) in [
            ("ca.crt", authority.pem()),
            ("api.crt", certificate),
            ("api.key", key),
            // The key that signs the tokens of ServiceAccounts, and the certificate that verifies
            // them.
            ("accounts.key", account_key),
            ("accounts.crt", account_certificate),
            ("tokens.csv", administrator),
        ] {
            std::fs::write(folder.join(name), text).or_fail(name);
        }
        let [etcd, api] = ports::free();
        Self { folder: folder.to_owned(), etcd, api }
    }

    pub(super) fn start_etcd(&self) -> Server {
        let url = format!("http://{}", self.etcd);
        let program = Program::new(tools::find("etcd"))
            .arg(option("data-dir", self.folder.join("etcd").display()))
            .arg(option("listen-client-urls", &url))
            .arg(option("advertise-client-urls", &url))
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .arg("--logger=zap")
            // Test data need not survive a power failure.
            .arg("--unsafe-no-fsync");
        Server::start(program, || std::net::TcpStream::connect(self.etcd).is_ok())
    }

    /// Starts the API server; `ready` checks whether it responds.
    pub(super) fn start_api(&self, ready: impl Fn() -> bool) -> Server {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            ("etcd-servers", format!("http://{}", self.etcd)),
            ("bind-address", self.api.ip().to_string()),
            ("secure-port", self.api.port().to_string()),
            ("tls-cert-file", file("api.crt")),
            ("tls-private-key-file", file("api.key")),
            ("token-auth-file", file("tokens.csv")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("service-account-key-file", file("accounts.crt")),
            ("service-account-signing-key-file", file("accounts.key")),
            // This plugin would wait for controllers that do not exist here.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            // The API server listens on loopback, and a loopback address cannot be published as an
            // endpoint.
            ("endpoint-reconciler-type", "none".to_owned()),
        ];
        let program = Program::new(tools::built("kubernetes"));
        let program = program.args(options.map(|(name, value)| option(name, value)));
        Server::start(program, ready)
    }
}

fn option(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}
