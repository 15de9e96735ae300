//! Typical mistakes with the plugin. Each must give an exit code and a message that says where,
//! why and what to do.

mod clusters;
mod imports;
mod uploads;

use std::path::Path;
use std::sync::OnceLock;

use serde_json::json;
use tempfile::TempDir;
use testkit::certs::{Authority, KeyKind};
use testkit::fail::OrFail;
use testkit::mistake::MistakeScene;
use testkit::nginx::Nginx;
use testkit::oci::tar;
use testkit::{disk, tools, wait};

use crate::upload::api;
use crate::write_kubeconfig;

const MIB: u64 = 1 << 20;

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/mistakes");

/// The namespace of all rows.
const NAMESPACE: &str = "mistakes";

const PAGE: &str = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>";

/// Answers of the web server.
const WEB: &str = r#"
    location / { root .; }
    location /locked { return 401; }
    location /page { default_type text/html; return 200 "<!DOCTYPE html><html><head><title>Sign in</title></head></html>"; }
"#;

/// Servers and files for all tables, which last as long as the process.
struct Surroundings {
    _folder: TempDir,
    _servers: [Nginx; 2],
}

/// Checks all rows.
#[track_caller]
fn check(name: &str, table: &[&str]) {
    static SCENE: OnceLock<(Surroundings, MistakeScene)> = OnceLock::new();
    SCENE.get_or_init(scene).1.check(name, table);
    let path = format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/datavolumes");
    let is_empty = || api().cluster.get(&path)["items"] == json!([]);
    wait::until(|| "a volume is left behind", is_empty);
}

fn scene() -> (Surroundings, MistakeScene) {
    let folder = tempfile::tempdir().or_fail("a folder");
    write_files(folder.path());
    let authority = Authority::new().or_fail("an authority");
    let identity = authority.server(KeyKind::Ecdsa).or_fail("a certificate");
    let servers = ["http", "https"].map(|name| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).or_fail(name);
        std::fs::write(place.join("server.crt"), &identity.certificate_pem)
            .or_fail("a certificate");
        std::fs::write(place.join("server.key"), identity.key_pem()).or_fail("a key");
        std::fs::write(place.join("empty"), "").or_fail("a file");
        for file in ["raw", "half.gz", "child.qcow2"] {
            std::fs::copy(folder.path().join(file), place.join(file)).or_fail(file);
        }
        Nginx::start(&place, name == "https", WEB)
    });
    let cluster = &api().cluster;
    cluster.create_namespace(NAMESPACE);
    // One claim for each row that locks it for a while.
    for claim in ["there", "closed", "untrusted", "web", "plain"] {
        cluster.create_upload_pvc(NAMESPACE, claim, &[("storage.pod.ready", "true")]);
    }
    let [http, https] = servers.each_ref().map(Nginx::address);
    let mut scene = MistakeScene::new(crate::BINARY, SNAPSHOTS)
        .variable("XDG_STATE_HOME", "{files}/state")
        .phrase("proxy", "--uploadproxy-url https://{closedport}")
        .phrase("here", "--kubeconfig {cluster} --namespace mistakes")
        .phrase("nowhere", "--kubeconfig {closed} --namespace mistakes")
        .phrase("identity", "--certificate-identity release@example.org")
        .phrase("trust", "--certificate-oidc-issuer https://i --trusted-root {files}/page.html")
        .secret("hunter2")
        .word("files", folder.path().display())
        .word("api", cluster.address())
        .word("cluster", cluster.administrator().display())
        .word("stranger", cluster.kubeconfig_for("hunter2").display())
        .word("closedport", "127.0.0.1:1")
        .word("http", http)
        .word("https", https);
    for (name, server) in [
        ("closed", "https://127.0.0.1:1".to_owned()),
        ("web", format!("http://{http}")),
        ("webpage", format!("http://{http}/page")),
        ("untrusted", format!("https://{https}")),
        ("nohost", "https://no-such-host.invalid".to_owned()),
    ] {
        let file = folder.path().join(name);
        write_kubeconfig(&file, &server);
        scene = scene.word(name, file.display());
    }
    (Surroundings { _folder: folder, _servers: servers }, scene)
}

fn write_files(folder: &Path) {
    let raw = disk::content(1, MIB);
    let gzip = tools::filter("gzip", ["-c"], &raw);
    let files: &[(&str, Vec<u8>)] = &[
        ("raw", raw.clone()),
        ("empty", Vec::new()),
        ("page.html", PAGE.into()),
        ("paper.pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".repeat(100)),
        ("disk.zip", [disk::ZIP_HEADER.to_vec(), disk::content(2, 4096)].concat()),
        ("half.gz", gzip[..gzip.len() / 2].to_vec()),
        ("damaged.qcow2", [b"QFI\xfb\0\0\0\x03".to_vec(), vec![0xEE; 4096]].concat()),
        ("files.tar", tar(&[("a", b"content")])),
        ("without-context", b"{\"apiVersion\":\"v1\",\"kind\":\"Config\"}".to_vec()),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).or_fail(name);
    }
    std::fs::create_dir(folder.join("directory")).or_fail("a folder");
    let qcow2 = folder.join("disk.qcow2");
    let words = ["create", "-q", "-f", "qcow2"].map(AsRef::as_ref);
    tools::run("qemu-img", words.into_iter().chain([qcow2.as_os_str(), "1M".as_ref()]));
    let child = folder.join("child.qcow2");
    let words = ["create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/base.img"]
        .map(AsRef::as_ref);
    tools::run("qemu-img", words.into_iter().chain([child.as_os_str(), "1M".as_ref()]));
    let fifo = folder.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
        .or_fail("a pipe");
}
