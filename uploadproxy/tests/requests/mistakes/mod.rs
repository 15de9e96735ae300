//! Typical mistakes of people who run the proxy without a cluster, or upload through it with curl.
//! Each must give an exit code or a status, and a message that says where, why and what to do.

mod serving;
mod uploads;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::mistake::MistakeScene;
use testkit::tokens::{TokenKey, claims, now};
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{NAMESPACE, UploadProxy, beside, development};

use crate::BINARY;

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requests/mistakes");

/// The servers and files that the scene needs.
struct Surroundings {
    _front: Server,
    _proxy: UploadProxy,
    _upload_server: Server,
    _pod: UploadPod,
    _folder: TempDir,
}

/// A single test, so that the servers end with it.
#[test]
fn every_mistake_is_explained() {
    let (surroundings, scene) = start();
    scene.check("serving", serving::SERVING);
    // These rows are not about the proxy's certificate.
    scene.check_requests("uploads", &["--insecure"], uploads::UPLOADS);
    drop(surroundings);
}

fn start() -> (Surroundings, MistakeScene) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let proxy = UploadProxy::new(BINARY);
    let pod = UploadPod::of_cluster(
        &beside(BINARY, "cdi-uploadserver"),
        proxy.cluster(),
        &["127.0.0.1".to_owned()],
    );
    let upload_server = pod.start();
    let [nobody] = testkit::ports::free();
    let proxy = proxy.route("disk", upload_server.address()).route("closed", nobody);
    write_files(folder.path());
    let front = proxy.start();
    let address = front.address();
    let bearer = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims("disk", NAMESPACE);
        change(&mut claims);
        format!("Bearer {}", proxy.key().sign("PS256", &claims))
    };
    let keys = proxy.path("token.pub").parent().or_fail("a folder").to_owned();
    let scene = MistakeScene::new(development(BINARY), SNAPSHOTS)
        .phrase("keys", "--public-key {proxy}/token.pub --self-signed {proxy}")
        .word("files", folder.path().display())
        .word("proxy", keys.display())
        .word("space", " ")
        .word("disk", proxy.bearer("disk"))
        .word("closed", proxy.bearer("closed"))
        .word("nobody", proxy.bearer("nobody"))
        .word("expired", bearer(&|claims| claims["exp"] = json!(now() - 600)))
        .word("clone", bearer(&|claims| claims["operation"] = json!("Clone")))
        .word("stranger", format!("Bearer {}", TokenKey::generate().token("disk", NAMESPACE)))
        .word("url", format!("https://{address}/v1beta1"))
        .word("base", format!("https://{address}"))
        .word("address", address);
    let surroundings = Surroundings {
        _folder: folder,
        _pod: pod,
        _upload_server: upload_server,
        _proxy: proxy,
        _front: front,
    };
    (surroundings, scene)
}

fn write_files(folder: &Path) {
    let route = |name: &str, url: &str| {
        format!("[[route]]\nnamespace = \"default\"\npvc = \"{name}\"\nurl = \"{url}\"\n")
    };
    let good = route("disk", "https://localhost:9443");
    for (name, text) in [
        ("routes.toml", good.clone()),
        ("nonsense.toml", "# A comment.\nnonsense\n".to_owned()),
        ("incomplete.toml", "[[route]]\nnamespace = \"default\"\n".to_owned()),
        ("unknown.toml", format!("{good}port = 9443\n")),
        ("path.toml", route("disk", "https://localhost:9443/v1beta1/upload")),
        ("url.toml", route("disk", "localhost:port")),
        ("http.toml", route("disk", "http://localhost:9443")),
        ("password.toml", route("disk", "https://user:word@localhost:9443")),
        ("name.toml", route("UPPER_case", "https://localhost:9443")),
        ("twice.toml", format!("{good}{good}")),
        ("page.html", "<!DOCTYPE html><html><head><title>Sign in</title></head></html>".to_owned()),
        ("empty", String::new()),
    ] {
        std::fs::write(folder.join(name), text).or_fail(name);
    }
    let zip = [disk::ZIP_HEADER.to_vec(), disk::content(2, 4096)].concat();
    std::fs::write(folder.join("disk.zip"), zip).or_fail("a file");
    std::fs::write(folder.join("raw"), disk::content(1, 1 << 20)).or_fail("a file");
    std::fs::create_dir(folder.join("directory")).or_fail("a folder");
}
