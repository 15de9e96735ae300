//! The real Keystone and Glance on loopback. `crates/testkit/openstack/build` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fail::OrFail;
use crate::process::{Program, Running, lasting};
use crate::tools;

/// The only user. It belongs to the default domain and administers the project of the same name.
pub const USER: &str = "admin";

/// The user's password, which `crates/testkit/openstack/build` sets.
pub const PASSWORD: &str = "s3cret & more=%";

/// The domain of the user and of the project.
pub const DOMAIN: &str = "Default";

/// The region whose image service is Glance itself.
pub const REGION: &str = "RegionOne";

/// Both services. They run as long as this process.
pub struct Cloud {
    keystone: Keystone,
    images: String,
    /// The ID of the image service in the catalogue.
    service: String,
    /// Contains databases, keys and images.
    _folder: TempDir,
    _programs: [Running; 2],
}

impl Cloud {
    /// Returns the cloud of this process. The first call takes ten seconds, or two minutes if the
    /// services must be installed first.
    pub fn get() -> &'static Self {
        static CLOUD: OnceLock<Cloud> = OnceLock::new();
        CLOUD.get_or_init(Self::start)
    }

    fn start() -> Self {
        let installed = tools::built("openstack");
        let folder = tempfile::tempdir().or_fail("a folder");
        copy(&installed.join("template"), folder.path());
        configure_keystone(folder.path());
        let (url, first) = serve(&installed, "keystone", folder.path());
        let keystone = Keystone::log_in(url + "/v3");
        // Glance looks up the service that verifies tokens in Keystone's catalogue.
        let itself = keystone.add_service("identity");
        keystone.add_endpoint(&itself, REGION, &keystone.url);
        configure_glance(&installed, folder.path(), &keystone.url);
        let (images, second) = serve(&installed, "glance", folder.path());
        let service = keystone.add_service("image");
        keystone.add_endpoint(&service, REGION, &images);
        Self { keystone, images, service, _folder: folder, _programs: [first, second] }
    }

    /// The URL of Keystone.
    pub fn identity(&self) -> &str {
        &self.keystone.url
    }

    /// The URL of Glance, without its version.
    pub fn images(&self) -> &str {
        &self.images
    }

    /// A token for the user's project.
    pub fn token(&self) -> &str {
        &self.keystone.token
    }

    /// Makes an application credential and returns its ID and secret.
    pub fn application_credential(&self) -> (String, String) {
        let path = format!("users/{}/application_credentials", self.keystone.user);
        let made =
            self.keystone.add(&path, "application_credential", &json!({"name": "migration"}));
        (text(&made["id"]), text(&made["secret"]))
    }

    /// Makes a region whose image service is at `url`, and returns its name.
    pub fn region(&self, url: &str) -> String {
        static REGIONS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("region-{}", REGIONS.fetch_add(1, Ordering::Relaxed));
        self.keystone.add("regions", "region", &json!({"id": name}));
        self.keystone.add_endpoint(&self.service, &name, url);
        name
    }

    /// Uploads an image and returns its ID.
    pub fn add_image(&self, disk_format: &str, content: &[u8]) -> String {
        let wanted =
            json!({"name": "disk", "disk_format": disk_format, "container_format": "bare"});
        let url = format!("{}/v2/images", self.images);
        let made = send(
            "POST",
            &url,
            Some(self.token()),
            "application/json",
            wanted.to_string().as_bytes(),
        );
        let id = text(&body(&made)["id"]);
        let url = format!("{url}/{id}/file");
        send("PUT", &url, Some(self.token()), "application/octet-stream", content);
        id
    }
}

/// The identity service, logged in as administrator.
struct Keystone {
    url: String,
    token: String,
    user: String,
}

impl Keystone {
    fn log_in(url: String) -> Self {
        let domain = json!({"name": DOMAIN});
        let user = json!({"name": USER, "password": PASSWORD, "domain": domain});
        let auth = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": USER, "domain": domain}},
        }});
        let tokens = format!("{url}/auth/tokens");
        let answer = send("POST", &tokens, None, "application/json", auth.to_string().as_bytes());
        let token = answer.lines().find_map(|line| line.strip_prefix("X-Subject-Token: "));
        Self {
            url,
            token: token.or_fail(&answer).trim().to_owned(),
            user: text(&body(&answer)["token"]["user"]["id"]),
        }
    }

    /// Creates an object of this `kind` and returns the server's description of it.
    fn add(&self, path: &str, kind: &str, thing: &Value) -> Value {
        let url = format!("{}/{path}", self.url);
        let wanted = json!({kind: thing}).to_string();
        let answer = send("POST", &url, Some(&self.token), "application/json", wanted.as_bytes());
        body(&answer)[kind].take()
    }

    fn add_service(&self, kind: &str) -> String {
        text(&self.add("services", "service", &json!({"type": kind, "name": kind}))["id"])
    }

    fn add_endpoint(&self, service: &str, region: &str, url: &str) {
        let endpoint =
            json!({"service_id": service, "interface": "public", "region_id": region, "url": url});
        self.add("endpoints", "endpoint", &endpoint);
    }
}

/// Sends a request that must succeed, and returns the response with its head. Requests are sent
/// one at a time: the databases are SQLite files, and SQLite immediately refuses one of two
/// transactions that both read before they write.
fn send(
    method: &str,
    url: &str,
    token: Option<&str>,
    content_type: &str,
    content: &[u8],
) -> String {
    let content_type = format!("content-type: {content_type}");
    let token = token.map(|token| format!("x-auth-token: {token}"));
    let headers: Vec<&str> =
        [Some(&content_type), token.as_ref()].into_iter().flatten().map(String::as_str).collect();
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    tools::send(method, url, &headers, content)
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").or_fail(answer);
    serde_json::from_str(body).or_fail(answer)
}

fn text(value: &Value) -> String {
    value.as_str().or_fail(value).to_owned()
}

/// Starts one of the services and returns its URL.
fn serve(installed: &Path, name: &str, folder: &Path) -> (String, Running) {
    let program = Program::new(installed.join("python/bin/python3"))
        .arg(scripts().join("serve.py"))
        .arg(name)
        .arg(folder);
    let url = |log: &str| {
        let mut lines = log.lines();
        lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
    };
    lasting::start_server(program, url)
}

/// Configures Keystone to use the databases in `folder`, a copy of the installed template.
fn configure_keystone(folder: &Path) {
    let run = folder.display();
    let text = format!(
        "[database]\nconnection = sqlite:///{run}/keystone.db?timeout=120\n[token]\nprovider = fernet\n\
         [fernet_tokens]\nkey_repository = {run}/keys\n[fernet_receipts]\nkey_repository = {run}/keys\n\
         [cache]\nenabled = false\n"
    );
    std::fs::write(folder.join("keystone.conf"), text).or_fail("the configuration of Keystone");
}

fn configure_glance(installed: &Path, folder: &Path, keystone: &str) {
    let (run, paste) = (folder.display(), installed.join("python/etc/glance/glance-api-paste.ini"));
    let paste = paste.display();
    // The password needs no escaping; only a dollar sign would be special.
    let text = format!(
        "[DEFAULT]\nenabled_backends = files:file\n[database]\nconnection = sqlite:///{run}/glance.db?timeout=120\n\
         [glance_store]\ndefault_backend = files\n[files]\nfilesystem_store_datadir = {run}/images\n\
         [os_glance_staging_store]\nfilesystem_store_datadir = {run}/staging\n\
         [os_glance_tasks_store]\nfilesystem_store_datadir = {run}/tasks\n\
         [paste_deploy]\nflavor = keystone\nconfig_file = {paste}\n\
         [keystone_authtoken]\nauth_url = {keystone}\nwww_authenticate_uri = {keystone}\ninterface = public\n\
         auth_type = password\nusername = {USER}\npassword = {PASSWORD}\nproject_name = {USER}\n\
         user_domain_name = {DOMAIN}\nproject_domain_name = {DOMAIN}\n"
    );
    std::fs::write(folder.join("glance-api.conf"), text).or_fail("the configuration of Glance");
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new(tools::find("cp"));
    command.args(["--recursive", "--no-target-directory"]).args([from, to]);
    assert!(command.status().or_fail("cp").success(), "cannot copy {}", from.display());
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack")
}
