//! The part of cdi-apiserver that issues upload tokens: an aggregated API behind the real API
//! server and its RBAC.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Cluster;
use super::cdi::CDI_NAMESPACE;
use super::servers::ADMIN_TOKEN;
use crate::certs::Authority;
use crate::fail::OrFail;
use crate::serving::ScriptedServer;
use crate::tokens::{LIFETIME_SECONDS, TokenKey, claims};
use crate::wire::{self, Request, Stream};

/// The name of the Service through which the API server finds this one.
const SERVICE: &str = "cdi-api";
const GROUP: &str = "upload.cdi.kubevirt.io";
const VERSION: &str = "v1beta1";

/// A running cdi-apiserver; stops when dropped.
pub struct TokenServer {
    shared: Arc<Shared>,
    server: ScriptedServer,
}

struct Shared {
    key: TokenKey,
    lifetime: AtomicI64,
    given: AtomicUsize,
}

impl TokenServer {
    /// The key that signs the tokens. An upload proxy verifies them with its public half.
    pub fn key(&self) -> &TokenKey {
        &self.shared.key
    }

    /// Sets the lifetime of tokens issued from now on. The default is five minutes.
    pub fn set_lifetime_seconds(&self, seconds: i64) {
        self.shared.lifetime.store(seconds, Ordering::Relaxed);
    }

    /// The number of tokens issued so far.
    pub fn given(&self) -> usize {
        self.shared.given.load(Ordering::Relaxed)
    }
}

impl Cluster {
    /// Starts the API of upload tokens and registers it. Waits until the API server finds it.
    #[track_caller]
    pub fn serve_upload_tokens(&self) -> TokenServer {
        let authority = Authority::new().or_fail("an authority");
        let name = format!("{SERVICE}.{CDI_NAMESPACE}.svc");
        let tls = authority.server_config_for(&[&name]).or_fail("TLS");
        let server = start(tls.into()).or_fail("an API of upload tokens");
        self.create_namespace(CDI_NAMESPACE);
        // A loopback address cannot be published as an endpoint, but a Service may be an alias of
        // `localhost`.
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        self.apply(&format!("/api/v1/namespaces/{CDI_NAMESPACE}/services/{SERVICE}"), &service);
        let api = format!("{VERSION}.{GROUP}");
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": api},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"namespace": CDI_NAMESPACE, "name": SERVICE, "port": server.server.address().port()},
                "caBundle": STANDARD.encode(authority.pem()),
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
            },
        });
        // Not by `apply`: for APIServices, the API server closes the connection upon such a PATCH.
        self.create("/apis/apiregistration.k8s.io/v1/apiservices", &service);
        self.wait_for("the API of upload tokens is served", || {
            self.get_as(ADMIN_TOKEN, &format!("/apis/{GROUP}/{VERSION}")).status == 200
        });
        server
    }
}

fn start(tls: TlsAcceptor) -> io::Result<TokenServer> {
    let shared = Arc::new(Shared {
        key: TokenKey::generate(),
        lifetime: LIFETIME_SECONDS.into(),
        given: AtomicUsize::new(0),
    });
    let answers = Arc::clone(&shared);
    let server =
        ScriptedServer::start(move |stream| serve(tls.clone(), stream, Arc::clone(&answers)))?;
    Ok(TokenServer { shared, server })
}

async fn serve(tls: TlsAcceptor, stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    while let Some(request) = Request::read(&mut stream).await? {
        let length = request.header("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await?;
        let (status, answer) = shared.answer(&request, &body);
        respond(&mut stream, status, &answer.to_string()).await?;
    }
    Ok(())
}

async fn respond(stream: &mut dyn Stream, status: u16, body: &str) -> io::Result<()> {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Content-Length".to_owned(), body.len().to_string()),
    ];
    wire::write_head(stream, status, &headers).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await
}

impl Shared {
    fn answer(&self, request: &Request, body: &[u8]) -> (u16, Value) {
        let root = format!("/apis/{GROUP}/{VERSION}");
        let path = request.path();
        if path == root {
            return (200, resources());
        }
        let namespace = path
            .strip_prefix(&format!("{root}/namespaces/"))
            .and_then(|rest| rest.strip_suffix("/uploadtokenrequests"));
        match namespace {
            Some(namespace) if request.method == "POST" => (201, self.give(namespace, body)),
            _ => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}),
            ),
        }
    }

    /// Returns the request completed with a token, signed as cdi-apiserver does it.
    fn give(&self, namespace: &str, body: &[u8]) -> Value {
        let mut request: Value = serde_json::from_slice(body).or_fail("a request for a token");
        let claim = request["spec"]["pvcName"].as_str().or_fail("a claim in the request");
        let mut claims = claims(claim, namespace);
        let issued = claims["iat"].as_i64().or_fail("a time");
        claims["exp"] = json!(issued + self.lifetime.load(Ordering::Relaxed));
        request["status"] = json!({"token": self.key.sign("PS256", &claims)});
        self.given.fetch_add(1, Ordering::Relaxed);
        request
    }
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": "uploadtokenrequests",
            "singularName": "uploadtokenrequest",
            "namespaced": true,
            "kind": "UploadTokenRequest",
            "verbs": ["create"],
        }],
    })
}
