//! The real program against a hostile API server and upload proxy. Their answers must not become a
//! path, a command or a line of output, nor exhaust memory or time.

mod answers;
mod ledger;
mod names;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::adversary::{Adversary, Reply};
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::wire::Request;

use crate::{BINARY, write_kubeconfig};

/// The path of every resumable upload.
const UPLOADS: &str = "/v1beta1/upload-resumable";

/// Answers of a cluster and its upload proxy.
#[derive(Clone)]
struct Cluster {
    claim: Value,
    token: Value,
    /// The location of the upload, as the proxy states it.
    location: String,
    /// The URL of the proxy in CDIConfig, if it is not the proxy's own.
    proxy_url: Option<String>,
}

impl Cluster {
    /// A harmless cluster, which refuses the image after its first byte.
    fn harmless() -> Self {
        Self {
            claim: json!({
                "metadata": {"name": "disk", "uid": "0a1b-2c", "annotations": {
                    "cdi.kubevirt.io/storage.upload.target": "",
                    "cdi.kubevirt.io/storage.pod.ready": "true",
                }},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound"},
            }),
            token: json!("header.payload.signature"),
            location: format!("{UPLOADS}/a1"),
            proxy_url: None,
        }
    }

    fn answer(&self, request: &Request, proxy_url: &str) -> Reply {
        let config =
            json!({"status": {"uploadProxyURL": self.proxy_url.as_deref().unwrap_or(proxy_url)}});
        let claim = "/api/v1/namespaces/default/persistentvolumeclaims/disk";
        let object = match (request.method.as_str(), request.path()) {
            ("GET", "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config") => config,
            ("GET", path) if path == claim => self.claim.clone(),
            ("POST", path) if path.ends_with("/uploadtokenrequests") => {
                json!({"status": {"token": self.token}})
            }
            _ => return Reply::status(404, r#"{"kind": "Status", "reason": "NotFound"}"#),
        };
        Reply::of(object.to_string())
    }
}

/// The home of a user whose kubeconfig leads to a cluster.
struct Laptop {
    folder: TempDir,
    api: Adversary,
    proxy: Adversary,
}

impl Laptop {
    fn new(cluster: Cluster) -> Self {
        let location = cluster.location.clone();
        Self::with_proxy(cluster, move |request| match request.method.as_str() {
            "POST" => Reply::status(201, "").with("Location", location.clone()),
            _ => Reply::status(400, "refused by the test"),
        })
    }

    fn with_proxy(
        cluster: Cluster,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new().or_fail("an authority");
        let tls = authority.server_config().or_fail("TLS");
        let proxy = Adversary::start_tls(move |request, _| answer(request), tls);
        let url = proxy.url("");
        Self::with(move |request| cluster.answer(request, &url), proxy)
    }

    fn with(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static, proxy: Adversary) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let api = Adversary::start(move |request, _| answer(request));
        let laptop = Self { folder, api, proxy };
        for name in ["home/.bashrc.d", "home/.local/state"] {
            fs::create_dir_all(laptop.path(name)).or_fail(name);
        }
        fs::write(laptop.path("home/.bashrc.d/x.upload"), "mine\n").or_fail("a file");
        fs::write(laptop.path("image"), disk::content(1, 1 << 20)).or_fail("an image");
        write_kubeconfig(&laptop.path("config"), &laptop.api.url(""));
        laptop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the folder of the ledgers.
    fn ledgers(&self) -> PathBuf {
        self.path("home/.local/state/kubectl-cdi")
    }

    fn program(&self, line: &str) -> Program {
        Program::new(BINARY)
            .args(line.split(' '))
            .arg("--kubeconfig")
            .arg(self.path("config"))
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("home/.local/state"))
    }

    fn upload(&self, timeout: &str) -> Program {
        let image = self.path("image");
        self.program(&format!(
            "upload {} pvc/disk --no-create --insecure --timeout {timeout}",
            image.display()
        ))
    }

    /// Returns all files of the user except the ledgers, with their contents.
    fn files(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).or_fail(folder.display()) {
                let path = entry.or_fail(folder.display()).path();
                let kind = fs::symlink_metadata(&path).or_fail(path.display()).file_type();
                if path == self.ledgers() {
                    continue;
                }
                files.insert(
                    path.clone(),
                    kind.is_file().then(|| fs::read(&path).or_fail(path.display())),
                );
                if kind.is_dir() {
                    folders.push(path);
                }
            }
        }
        files
    }

    /// Returns names and contents of the ledgers.
    fn left(&self) -> Vec<(String, String)> {
        let Ok(entries) = fs::read_dir(self.ledgers()) else {
            return Vec::new();
        };
        let mut left: Vec<_> = entries
            .map(|entry| entry.or_fail("a ledger"))
            .map(|entry| {
                let content = fs::read(entry.path()).unwrap_or_default();
                let content = String::from_utf8_lossy(&content).into_owned();
                (entry.file_name().to_string_lossy().into_owned(), content)
            })
            .collect();
        left.sort();
        left
    }
}

/// Returns the permissions of a file.
fn mode(path: &Path) -> u32 {
    let metadata = fs::symlink_metadata(path).or_fail(path.display());
    metadata.permissions().mode() & 0o7777
}
