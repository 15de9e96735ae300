//! A cloud that does what it is told: Keystone and Glance on one port, with one user and one image.
//!
//! It is strict where real ones are: who asks without a token that counts gets 401, and nobody gets a validator.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::adversary::{Adversary, Reply};
use crate::fail::OrFail;
use crate::gateway::{Fault, Gateway, Plan};
use crate::tools;
use crate::wire::Request;

/// The only user, in the domain `default`.
pub const USER: &str = "migrator";

/// The user's password.
pub const PASSWORD: &str = "correct horse";

/// A token that the user has got elsewhere.
pub const OWN_TOKEN: &str = "token-of-elsewhere";

/// The secret of the application credential `credential`.
pub const CREDENTIAL: &str = "battery staple";

/// The image.
pub const IMAGE_ID: &str = "5e0f1c8e-7d0b-4d6c-9a51-3f2f8a0c1b77";

/// The address of the cloud, in documents that a test makes up.
pub const CLOUD: &str = "{cloud}";

/// Paths of the documents, and of the bytes.
pub const TOKENS: &str = "/v3/auth/tokens";
const IMAGES: &str = "/image/v2/images/";
const FILE: &str = "/file";

/// The image, and the misbehaviour.
#[derive(Debug, Clone)]
pub struct Script {
    /// The bytes of the image.
    pub bytes: Bytes,
    /// The description of the image.
    pub image: Value,
    /// The services of a token that has a scope.
    pub catalog: Value,
    /// Requests for bytes that a token is good for.
    pub reads_of_token: usize,
    /// Answers by path instead of the right ones.
    pub replies: HashMap<String, Reply>,
    /// Faults of the answers with bytes.
    pub faults: Vec<Fault>,
}

impl Script {
    /// An image of these bytes in a cloud that behaves.
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
            reads_of_token: usize::MAX,
            replies: HashMap::new(),
            faults: Vec::new(),
        }
    }

    /// With another value in the description of the image.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.image[key] = value.into();
        self
    }

    /// With another answer to `path`.
    pub fn replying(mut self, path: &str, reply: Reply) -> Self {
        self.replies.insert(path.to_owned(), reply);
        self
    }
}

/// A catalogue of endpoints: type, interface, region, URL.
pub fn catalog(endpoints: &[(&str, &str, &str, &str)]) -> Value {
    let services = endpoints.iter().map(|(kind, interface, region, url)| {
        let endpoint = json!({"interface": interface, "region": region, "region_id": region, "url": url});
        json!({"type": kind, "name": "service", "endpoints": [endpoint]})
    });
    services.collect()
}

/// The path of the description of the image.
pub fn image_path() -> String {
    format!("{IMAGES}{IMAGE_ID}")
}

fn hash(program: &str, bytes: &[u8]) -> String {
    let line = String::from_utf8_lossy(&tools::filter(program, ["-"], bytes)).into_owned();
    line.split(' ').next().unwrap_or_default().to_owned()
}

/// A running cloud on loopback ports of its own; stops when dropped.
pub struct Cloud {
    gateway: Gateway,
    server: Adversary,
    state: Arc<State>,
}

struct State {
    script: Script,
    url: OnceLock<String>,
    /// Tokens that were given.
    tokens: AtomicUsize,
    /// Requests for bytes with the newest of them.
    reads: AtomicUsize,
    is_locked: AtomicUsize,
}

impl Cloud {
    /// A cloud over plain HTTP.
    pub fn start(script: Script) -> Self {
        Self::spawn(script, None)
    }

    /// A cloud over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<ServerConfig>) -> Self {
        Self::spawn(script, Some(tls))
    }

    fn spawn(script: Script, tls: Option<Arc<ServerConfig>>) -> Self {
        let plan =
            Plan { matching: |request| request.path().ends_with(FILE), ..Plan::of(script.faults.clone()) };
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

    /// The image, as the command line names it.
    pub fn source(&self) -> String {
        self.source_of(IMAGE_ID)
    }

    /// Another image.
    pub fn source_of(&self, image_id: &str) -> String {
        format!("glance+{}?image={image_id}", self.gateway.url("/v3"))
    }

    /// All requests so far, with their bodies.
    pub fn requests(&self) -> Vec<(Request, String)> {
        self.server.requests()
    }

    /// Tokens that were given so far.
    pub fn tokens(&self) -> usize {
        self.state.tokens.load(Ordering::SeqCst)
    }

    /// Bytes of all answers so far.
    pub fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    /// From now on nobody is let in.
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
            Some(FILE) if self.reads.fetch_add(1, Ordering::SeqCst) >= self.script.reads_of_token => {
                unauthorized()
            }
            Some(FILE) => self.bytes(request),
            _ => Reply::status(404, "<html><title>404 Not Found</title>No image found</html>"),
        }
    }

    fn tokens(&self) -> usize {
        self.tokens.load(Ordering::SeqCst)
    }

    /// Keystone's answer to a proof of who asks.
    fn new_token(&self, body: &str) -> Reply {
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
        let has_scope = proof["methods"][0] == "application_credential" || auth.get("scope").is_some();
        let number = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
        self.reads.store(0, Ordering::SeqCst);
        let reply = self.granted(201, has_scope);
        reply.with("X-Subject-Token", format!("token-{number}"))
    }

    /// Keystone's answer to a question about a token.
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
        let total = bytes.len() as u64;
        let Some(range) = request.range(total) else {
            return Reply::of(bytes.clone());
        };
        if range.start >= range.end {
            return Reply::status(416, "").with("Content-Range", format!("bytes */{total}"));
        }
        let index = |offset: u64| usize::try_from(offset).or_fail("an offset");
        let part = bytes.slice(index(range.start)..index(range.end));
        let said = format!("bytes {}-{}/{total}", range.start, range.end - 1);
        Reply::status(206, part).with("Content-Range", said)
    }
}

/// Keystone's words.
fn unauthorized() -> Reply {
    let said = "The request you have made requires authentication.";
    let error = json!({"error": {"code": 401, "title": "Unauthorized", "message": said}});
    Reply::status(401, error.to_string())
}
