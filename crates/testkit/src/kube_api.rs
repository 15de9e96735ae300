//! A fake Kubernetes API server for the upload proxy, over plain HTTP. It has the three kinds of
//! objects that the proxy reads: PVCs in any state, even ones that a real cluster shows only
//! briefly, the CDIConfig, and the ConfigMap with the CA of the upload servers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::fail::OrFail;
use crate::serving::ScriptedServer;
use crate::wire::{self, Request};

/// The annotation that marks a PVC as the target of an upload.
pub const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// The annotation that states whether the upload pod is ready.
pub const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
/// The annotation that states the phase of the upload pod.
pub const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// The annotation that states the kind of content.
pub const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// The annotation that names the PVC that a populator fills in place of this one.
pub const PVC_PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";

/// Returns a PVC with these annotations.
pub fn pvc(name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"),
                      "resourceVersion": "7", "annotations": annotations },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound" },
    })
}

/// Returns a PVC whose upload pod is waiting for an upload.
pub fn ready_pvc(name: &str) -> Value {
    pvc(name, &[(UPLOAD_TARGET, ""), (POD_PHASE, "Running"), (POD_READY, "true")])
}

/// Turns the PVC into one that is filled by the upload populator.
pub fn populated(mut pvc: Value) -> Value {
    pvc["spec"]["dataSourceRef"] =
        json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeUploadSource", "name": "source" });
    pvc
}

/// The response to a GET.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Status 200 with this object.
    Object(Value),
    /// A failure with this code, reason and message (`Status` of meta/v1).
    Status(u16, &'static str, String),
    /// Status 200 with this object, after this delay.
    Late(Duration, Value),
    /// No response, ever.
    Silence,
    /// These bytes, which include the head, followed by the end of the connection.
    Bytes(Vec<u8>),
    /// The bytes of `begin`, and then `piece` again after each `pause` until the connection
    /// breaks.
    Endless {
        /// A head, and the first bytes of the body.
        begin: Vec<u8>,
        /// The bytes that are repeated.
        piece: Vec<u8>,
        /// The delay between the pieces.
        pause: Duration,
    },
}

impl Answer {
    /// Status 200 with this body, declared as JSON, and the end of the connection.
    pub fn json(body: &str) -> Self {
        Self::Bytes(format!("{JSON_HEAD}Content-Length: {}\r\n\r\n{body}", body.len()).into())
    }

    /// Status 200 with a body that begins with `begin` and repeats `piece` for ever.
    pub fn endless(begin: &str, piece: &str, pause: Duration) -> Self {
        let times = if pause.is_zero() { (1 << 16) / piece.len() } else { 1 };
        Self::Endless {
            begin: format!("{JSON_HEAD}\r\n{begin}").into(),
            piece: piece.repeat(times).into(),
            pause,
        }
    }
}

const JSON_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

#[derive(Default)]
struct Store {
    pvcs: BTreeMap<String, VecDeque<Answer>>,
    config_map: Option<Answer>,
    /// Response to lists of the CDIConfig, if not the current config.
    list: Option<Answer>,
    watch: Option<Answer>,
    profile: Value,
    requests: Vec<String>,
    /// Ends the open watches.
    ends: Arc<Notify>,
}

/// A running API server. It stops when dropped.
pub struct KubeApi {
    store: Arc<Mutex<Store>>,
    server: ScriptedServer,
}

impl KubeApi {
    /// Starts a server without PVCs whose ConfigMap contains `ca_bundle`.
    pub fn start(ca_bundle: &str) -> Self {
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = Arc::clone(&store);
        let server = ScriptedServer::start(move |stream| serve(stream, Arc::clone(&shared)));
        let server = server.or_fail("a server");
        let api = Self { store, server };
        api.set_ca_bundle(ca_bundle);
        api
    }

    /// Writes a kubeconfig for this server.
    pub fn write_kubeconfig(&self, file: &Path) {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", self.server.address()) } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        std::fs::write(file, config.to_string()).or_fail(file.display());
    }

    /// Sets the responses to GETs of the PVC `name` in the namespace `default`, one after another.
    /// The last one is repeated.
    pub fn set_pvc(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.store).pvcs.insert(name.to_owned(), answers.into_iter().collect());
    }

    /// Makes the PVC `name` this object.
    pub fn set_object(&self, name: &str, object: Value) {
        self.set_pvc(name, [Answer::Object(object)]);
    }

    /// Replaces the CA bundle in the ConfigMap.
    pub fn set_ca_bundle(&self, ca_bundle: &str) {
        self.set_config_map(Answer::Object(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "cdi-uploadserver-signer-bundle", "namespace": "cdi", "resourceVersion": "3" },
            "data": { "ca-bundle.crt": ca_bundle },
        })));
    }

    /// Sets the response to GETs of the ConfigMap.
    pub fn set_config_map(&self, answer: Answer) {
        lock(&self.store).config_map = Some(answer);
    }

    /// Sets the response to lists of the CDIConfig.
    pub fn set_list(&self, answer: Answer) {
        lock(&self.store).list = Some(answer);
    }

    /// Sets the response to watches of the CDIConfig.
    pub fn set_watch(&self, answer: Answer) {
        lock(&self.store).watch = Some(answer);
    }

    /// Deletes the ConfigMap.
    pub fn remove_ca_bundle(&self) {
        lock(&self.store).config_map = None;
    }

    /// Sets the TLS profile of the CDIConfig for later lists and watches.
    pub fn set_profile(&self, profile: Value) {
        lock(&self.store).profile = profile;
    }

    /// Ends the open watches.
    pub fn end_watches(&self) {
        lock(&self.store).ends.notify_waiters();
    }

    /// Methods and targets of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.store).requests.clone()
    }

    /// How often the PVC `name` was read.
    pub fn reads_of(&self, name: &str) -> usize {
        let line = format!("GET {}", pvc_path(name));
        let requests = self.requests();
        requests.iter().filter(|request| request.split('?').next() == Some(&line)).count()
    }
}

fn pvc_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")
}

async fn serve(mut stream: TcpStream, store: Arc<Mutex<Store>>) -> io::Result<()> {
    while let Some(request) = Request::read(&mut stream).await? {
        lock(&store).requests.push(format!("{} {}", request.method, request.target));
        let answer = if request.target.contains("watch=") {
            let scripted = lock(&store).watch.clone();
            match scripted {
                Some(answer) => answer,
                None => return watch(stream, &store).await,
            }
        } else {
            lock(&store).answer(request.path())
        };
        let (status, body) = match answer {
            Answer::Object(object) => (200, object),
            Answer::Late(pause, object) => {
                tokio::time::sleep(pause).await;
                (200, object)
            }
            Answer::Status(code, reason, message) => (code, failure(code, reason, &message)),
            Answer::Silence => return std::future::pending().await,
            Answer::Bytes(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Answer::Endless { begin, piece, pause } => {
                stream.write_all(&begin).await?;
                loop {
                    stream.write_all(&piece).await?;
                    tokio::time::sleep(pause).await;
                }
            }
        };
        let body = body.to_string();
        let headers = [
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Content-Length".to_owned(), body.len().to_string()),
        ];
        wire::write_head(&mut stream, status, &headers).await?;
        stream.write_all(body.as_bytes()).await?;
    }
    Ok(())
}

/// Serves a watch that stays open. It begins with the object and a bookmark, for clients that do
/// not list first.
async fn watch(mut stream: TcpStream, store: &Mutex<Store>) -> io::Result<()> {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
    ];
    wire::write_head(&mut stream, 200, &headers).await?;
    let config = lock(store).config();
    let bookmark = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
        "metadata": { "resourceVersion": "9", "annotations": { "k8s.io/initial-events-end": "true" } },
    });
    for (kind, object) in [("ADDED", config), ("BOOKMARK", bookmark)] {
        let line = format!("{}\n", json!({ "type": kind, "object": object }));
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        stream.write_all(chunk.as_bytes()).await?;
    }
    let ends = Arc::clone(&lock(store).ends);
    ends.notified().await;
    Ok(())
}

impl Store {
    fn answer(&mut self, path: &str) -> Answer {
        if path == "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs" {
            if let Some(answer) = &self.list {
                return answer.clone();
            }
            return Answer::Object(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfigList",
                "metadata": { "resourceVersion": "9" }, "items": [self.config()],
            }));
        }
        if path.starts_with("/api/v1/namespaces/cdi/configmaps/") {
            let found = self.config_map.clone();
            return found.unwrap_or_else(|| not_found("configmaps", path));
        }
        let named = path.rsplit('/').next().unwrap_or_default();
        match self.pvcs.get_mut(named) {
            Some(answers) if path == pvc_path(named) => {
                let next =
                    if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
                next.unwrap_or_else(|| not_found("persistentvolumeclaims", path))
            }
            _ => not_found("persistentvolumeclaims", path),
        }
    }

    fn config(&self) -> Value {
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
            "metadata": { "name": "config", "uid": "uid-config", "resourceVersion": "5" },
            "spec": { "tlsSecurityProfile": self.profile }, "status": {},
        })
    }
}

fn not_found(resource: &str, path: &str) -> Answer {
    let name = path.rsplit('/').next().unwrap_or_default();
    Answer::Status(404, "NotFound", format!("{resource} \"{name}\" not found"))
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().ok().or_fail("a connection panicked")
}
