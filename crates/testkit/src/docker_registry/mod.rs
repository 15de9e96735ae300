//! Runs `docker-registry` (distribution 2.8) on loopback, filled by skopeo.

mod token;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certs::Authority;
use crate::cluster::servers::Server;
use crate::fail::OrFail;
use crate::oci::{Image, write_layout};
use crate::process::Program;
use crate::tools;

pub use self::token::{ISSUER, SERVICE, TokenIssuer};

/// The user of a registry with passwords; see [`PASSWORD`].
pub const USER: &str = "joe";
/// The password of [`USER`].
pub const PASSWORD: &str = "hunter2";

/// How a registry authenticates its clients.
#[derive(Clone, Copy, Default)]
pub enum Auth<'a> {
    /// Not at all.
    #[default]
    Nobody,
    /// [`USER`] and [`PASSWORD`] in every request.
    Basic,
    /// A token signed by this issuer. The URL is the address of the token service.
    Token(&'a TokenIssuer, &'a str),
}

/// The settings of a registry.
#[derive(Clone, Copy, Default)]
pub struct Setup<'a> {
    /// The authority that signs the registry's certificate. Without one the registry speaks plain
    /// HTTP.
    pub authority: Option<&'a Authority>,
    /// Who may pull.
    pub auth: Auth<'a>,
    /// Blob requests are redirected to this URL, to which the path of the blob's file is appended.
    pub redirect: Option<&'a str>,
}

/// A running registry; stops when dropped.
pub struct DockerRegistry {
    folder: TempDir,
    address: SocketAddr,
    server: Server,
}

impl DockerRegistry {
    /// Starts an empty registry.
    pub fn start(setup: Setup<'_>) -> Self {
        Self::start_with(setup, &[])
    }

    /// Starts a registry with these images under their names (`repository:tag`), pushed by skopeo.
    pub fn start_with(setup: Setup<'_>, images: &[(&str, &[Image])]) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for the registry");
        if !images.is_empty() {
            // The registry is filled while it requires no authentication.
            let filled = Self::serve(folder, Setup::default());
            for (name, images) in images {
                filled.push(name, images, &["--all", "--preserve-digests"]);
            }
            return Self::serve(filled.close(), setup);
        }
        Self::serve(folder, setup)
    }

    fn serve(folder: TempDir, setup: Setup<'_>) -> Self {
        let [address] = crate::ports::free();
        let config = folder.path().join("config.yml");
        // JSON is valid YAML.
        let text = configuration(folder.path(), address, setup).to_string();
        std::fs::write(&config, text).or_fail("the registry's configuration");
        let program = Program::new(tools::find("docker-registry"))
            .args(["serve".as_ref(), config.as_os_str()])
            .env("OTEL_TRACES_EXPORTER", "none");
        let server = Server::start(program, || std::net::TcpStream::connect(address).is_ok());
        Self { folder, address, server }
    }

    fn close(mut self) -> TempDir {
        self.server.stop();
        self.folder
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the image `name` for skopeo and for our importer.
    pub fn reference(&self, name: &str) -> String {
        format!("docker://{}/{name}", self.address)
    }

    /// Pushes an image, or an index of several, with these options of `skopeo copy`. The registry
    /// must not require authentication.
    pub fn push(&self, name: &str, images: &[Image], options: &[&str]) {
        let layout = tempfile::tempdir().or_fail("a folder for a layout");
        write_layout(layout.path(), images);
        self.push_layout(name, &format!("oci:{}:test", layout.path().display()), options);
    }

    /// Pushes an image of the layout `source`, as skopeo names it.
    pub fn push_layout(&self, name: &str, source: &str, options: &[&str]) {
        let target = self.reference(name);
        let words = ["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"];
        let words = words.iter().chain(options).copied();
        tools::run("skopeo", words.chain([source, target.as_str()]));
    }

    /// The folder of the registry's files.
    pub fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

fn configuration(folder: &Path, address: SocketAddr, setup: Setup<'_>) -> Value {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).or_fail(name);
        path.display().to_string()
    };
    let mut http = json!({ "addr": address.to_string(), "secret": "of a test" });
    if let Some(authority) = setup.authority {
        let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
        http["tls"] = json!({
            "certificate": file("registry.crt", &certificate),
            "key": file("registry.key", &key),
        });
    }
    let mut config = json!({
        "version": 0.1,
        "log": { "level": "error", "accesslog": { "disabled": true } },
        "storage": { "filesystem": { "rootdirectory": folder.join("storage").display().to_string() } },
        "http": http,
    });
    match setup.auth {
        Auth::Nobody => {}
        Auth::Basic => {
            let line = tools::run("htpasswd", ["-nbB", "-C", "4", USER, PASSWORD]);
            config["auth"] =
                json!({ "htpasswd": { "realm": "test", "path": file("passwords", &line) } });
        }
        Auth::Token(issuer, realm) => {
            config["auth"] = json!({ "token": {
                "realm": realm,
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": file("issuer.crt", issuer.certificate_pem()),
            }});
        }
    }
    if let Some(url) = setup.redirect {
        config["middleware"] =
            json!({ "storage": [{ "name": "redirect", "options": { "baseurl": url } }] });
    }
    config
}
