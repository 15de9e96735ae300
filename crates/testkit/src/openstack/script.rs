//! A scripted cloud: Keystone and Glance on one port, with one user and one image.
//!
//! It is strict where real ones are: requests without a valid token get 401. Like Glance, it sends
//! no validator (`ETag`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::adversary::{Adversary, Reply};
use crate::fail::OrFail;
use crate::gateway::{Fault, Gateway, Plan};
use crate::tools;
use crate::wire::{self, Request};

/// The only user. It belongs to the domain `default`.
pub const USER: &str = "migrator";

/// The user's password.
pub const PASSWORD: &str = "correct horse";

/// A token that the user has obtained elsewhere.
pub const OWN_TOKEN: &str = "token-of-elsewhere";

/// The secret of the application credential `credential`.
pub const CREDENTIAL: &str = "battery staple";

/// The ID of the image.
pub const IMAGE_ID: &str = "5e0f1c8e-7d0b-4d6c-9a51-3f2f8a0c1b77";

/// Placeholder for the address of the cloud in documents of a test.
pub const CLOUD: &str = "{cloud}";

/// The paths of tokens, of an image's description, and of its bytes.
pub const TOKENS: &str = "/v3/auth/tokens";
const IMAGES: &str = "/image/v2/images/";
const FILE: &str = "/file";

/// The image, and how the cloud misbehaves.
#[derive(Debug, Clone)]
pub struct Script {
    /// The bytes of the image.
    pub bytes: Bytes,
    /// The description of the image.
    pub image: Value,
    /// The catalogue of services that comes with a token that has a scope.
    pub catalog: Value,
    /// Time that Keystone takes to issue a token.
    pub login_pause: Duration,
    /// Number of requests for image bytes for which a token is valid.
    pub reads_of_token: usize,
    /// Responses by path that replace the normal ones.
    pub replies: HashMap<String, Reply>,
    /// Faults of the responses that contain image bytes.
    pub faults: Vec<Fault>,
}

impl Script {
    /// An image of these bytes in a cloud without faults.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            image: json!({
                "id": IMAGE_ID,
                "status": "active",
                "size": bytes.len(),
                "checksum": hash("md5sum", &bytes),
                "os_hash_algo": "sha512",
                "os_hash_value": hash("sha512sum", &bytes),
                "disk_format": "qcow2",
                "container_format": "bare",
                "visibility": "private",
            }),
            catalog: catalog(&[("image", "public", "RegionOne", &format!("{CLOUD}/image"))]),
            bytes,
            login_pause: Duration::ZERO,
            reads_of_token: usize::MAX,
            replies: HashMap::new(),
            faults: Vec::new(),
        }
    }

    /// Changes a value in the description of the image.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.image[key] = value.into();
        self
    }

    /// Replaces the response to requests for `path`.
    pub fn replying(mut self, path: &str, reply: Reply) -> Self {
        self.replies.insert(path.to_owned(), reply);
        self
    }
}

/// Makes a catalogue of endpoints, given by type, interface, region and URL.
pub fn catalog(endpoints: &[(&str, &str, &str, &str)]) -> Value {
    let services = endpoints.iter().map(|(kind, interface, region, url)| {
        let endpoint =
            json!({"interface": interface, "region": region, "region_id": region, "url": url});
        json!({"type": kind, "name": "service", "endpoints": [endpoint]})
    });
    services.collect()
}

/// The path of the image's description.
pub fn image_path() -> String {
    format!("{IMAGES}{IMAGE_ID}")
}

fn hash(program: &str, bytes: &[u8]) -> String {
    let line = String::from_utf8_lossy(&tools::filter(program, ["-"], bytes)).into_owned();
    line.split(' ').next().unwrap_or_default().to_owned()
}

/// A running cloud on free loopback ports. It stops when dropped.
pub struct Cloud {
    gateway: Gateway,
    server: Adversary,
    state: Arc<State>,
}

struct State {
    script: Script,
    url: OnceLock<String>,
    /// Number of tokens issued.
    tokens: AtomicUsize,
    /// Requests for image bytes with the newest token.
    reads: AtomicUsize,
    is_locked: AtomicUsize,
}

impl Cloud {
    /// Starts a cloud over plain HTTP.
    pub fn start(script: Script) -> Self {
        Self::spawn(script, None)
    }

    /// Starts a cloud over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<ServerConfig>) -> Self {
        Self::spawn(script, Some(tls))
    }

    fn spawn(script: Script, tls: Option<Arc<ServerConfig>>) -> Self {
        let plan = Plan {
            matching: |request| request.path().ends_with(FILE),
            ..Plan::of(script.faults.clone())
        };
        let state = Arc::new(State {
            script,
            url: OnceLock::new(),
            tokens: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            is_locked: AtomicUsize::new(0),
        });
        let answering = Arc::clone(&state);
        let server = Adversary::start(move |request, body| answering.answer(request, body));
        let gateway = match tls {
            None => Gateway::start(server.address(), plan),
            Some(tls) => Gateway::start_tls(server.address(), plan, tls),
        };
        let gateway = gateway.or_fail("a gateway");
        state.url.set(gateway.url("")).ok().or_fail("one address");
        Self { gateway, server, state }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// The source on the command line that names the image.
    pub fn source(&self) -> String {
        self.source_of(IMAGE_ID)
    }

    /// The source that names the image with this ID.
    pub fn source_of(&self, image_id: &str) -> String {
        format!("glance+{}?image={image_id}", self.gateway.url("/v3"))
    }

    /// All requests so far, with their bodies.
    pub fn requests(&self) -> Vec<(Request, String)> {
        self.server.requests()
    }

    /// Number of tokens issued so far.
    pub fn tokens(&self) -> usize {
        self.state.tokens.load(Ordering::SeqCst)
    }

    /// Bytes of all response bodies so far.
    pub fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    /// Refuses to issue further tokens.
    pub fn lock_out(&self) {
        self.state.is_locked.store(1, Ordering::SeqCst);
    }
}

impl State {
    fn answer(&self, request: &Request, body: &str) -> Reply {
        let path = request.path();
        if let Some(reply) = self.script.replies.get(path) {
            return reply.clone();
        }
        if path == TOKENS {
            return match request.method.as_str() {
                "POST" => self.new_token(body),
                _ => self.own_token(request),
            };
        }
        let Some(image) = path.strip_prefix(IMAGES) else {
            return Reply::status(404, "<html>no such page</html>");
        };
        let newest = format!("token-{}", self.tokens());
        let token = request.header("x-auth-token").unwrap_or_default();
        if token != OWN_TOKEN && token != newest {
            return unauthorized();
        }
        match image.strip_prefix(IMAGE_ID) {
            Some("") => Reply::of(self.script.image.to_string()),
            Some(FILE)
                if self.reads.fetch_add(1, Ordering::SeqCst) >= self.script.reads_of_token =>
            {
                unauthorized()
            }
            Some(FILE) => self.bytes(request),
            _ => Reply::status(404, "<html><title>404 Not Found</title>No image found</html>"),
        }
    }

    fn tokens(&self) -> usize {
        self.tokens.load(Ordering::SeqCst)
    }

    /// Keystone's response to a request for a token.
    fn new_token(&self, body: &str) -> Reply {
        std::thread::sleep(self.script.login_pause);
        let asked: Value = serde_json::from_str(body).unwrap_or_default();
        let auth = &asked["auth"];
        let proof = &auth["identity"];
        let domain = json!({"id": "default"});
        let good = [
            json!({
                "methods": ["password"],
                "password": {"user": {"name": USER, "domain": domain, "password": PASSWORD}},
            }),
            json!({"methods": ["token"], "token": {"id": OWN_TOKEN}}),
            json!({
                "methods": ["application_credential"],
                "application_credential": {"id": "credential", "secret": CREDENTIAL},
            }),
        ];
        if self.is_locked.load(Ordering::SeqCst) != 0 || !good.contains(proof) {
            return unauthorized();
        }
        let has_scope =
            proof["methods"][0] == "application_credential" || auth.get("scope").is_some();
        let number = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
        self.reads.store(0, Ordering::SeqCst);
        let reply = self.granted(201, has_scope);
        reply.with("X-Subject-Token", format!("token-{number}"))
    }

    /// Keystone's response to a request that validates a token.
    fn own_token(&self, request: &Request) -> Reply {
        let names = ["x-auth-token", "x-subject-token"];
        if names.iter().all(|name| request.header(name) == Some(OWN_TOKEN)) {
            self.granted(200, true)
        } else {
            unauthorized()
        }
    }

    fn granted(&self, status: u16, has_scope: bool) -> Reply {
        let catalog = if has_scope { self.script.catalog.clone() } else { json!([]) };
        let document = json!({"token": {"methods": ["password"], "catalog": catalog}}).to_string();
        let url = self.url.get().map_or("", String::as_str);
        Reply::status(status, document.replace(CLOUD, url))
    }

    fn bytes(&self, request: &Request) -> Reply {
        let bytes = &self.script.bytes;
        let wanted = request.range(bytes.len() as u64);
        let (status, range, content_range) = wire::partial(wanted, bytes.len());
        let mut reply = Reply::status(status, bytes.slice(range));
        reply.headers.extend(content_range);
        reply
    }
}

/// The error response of Keystone.
fn unauthorized() -> Reply {
    let said = "The request you have made requires authentication.";
    let error = json!({"error": {"code": 401, "title": "Unauthorized", "message": said}});
    Reply::status(401, error.to_string())
}
