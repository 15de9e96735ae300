//! The three corners of a Kubernetes API server that the upload proxy looks into, over plain HTTP and as a test says:
//! PVCs in any state (also such as no cluster shows twice), the CDIConfig, the ConfigMap of the upload servers' CA.

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

/// Marks a PVC as the target of an upload.
pub const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// The readiness of the upload pod.
pub const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
/// The phase of the upload pod.
pub const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// The content that the PVC is going to have.
pub const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// The PVC that a populator fills instead.
pub const PVC_PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";

/// A PVC with these annotations.
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

/// A PVC whose upload pod waits for an upload.
pub fn ready_pvc(name: &str) -> Value {
    pvc(name, &[(UPLOAD_TARGET, ""), (POD_PHASE, "Running"), (POD_READY, "true")])
}

/// The same PVC, as one that the upload populator fills.
pub fn populated(mut pvc: Value) -> Value {
    pvc["spec"]["dataSourceRef"] =
        json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeUploadSource", "name": "source" });
    pvc
}

/// The answer to a GET.
#[derive(Debug, Clone)]
pub enum Answer {
    /// 200 with this object.
    Object(Value),
    /// A failure with this code, reason and message (`Status` of meta/v1).
    Status(u16, &'static str, String),
    /// 200 with this object, after this time.
    Late(Duration, Value),
    /// Nothing, ever.
    Silence,
    /// These bytes, head included, and the end of the connection.
    Bytes(Vec<u8>),
    /// The bytes of `begin`, and then `piece` after each `pause` until the connection breaks.
    Endless {
        /// A head, and what comes first behind it.
        begin: Vec<u8>,
        /// The bytes that come again and again.
        piece: Vec<u8>,
        /// In between.
        pause: Duration,
    },
}

#[derive(Default)]
struct Store {
    pvcs: BTreeMap<String, VecDeque<Answer>>,
    config_map: Option<Answer>,
    /// Of lists and watches of the CDIConfig, if not what the profile says.
    list: Option<Answer>,
    watch: Option<Answer>,
    profile: Value,
    requests: Vec<String>,
    /// Ends the watches that are open.
    ends: Arc<Notify>,
}

/// A running API server; stops when dropped.
pub struct KubeApi {
    store: Arc<Mutex<Store>>,
    server: ScriptedServer,
}

impl KubeApi {
    /// Starts a server with no PVC whose ConfigMap holds `ca_bundle`.
    pub fn start(ca_bundle: &str) -> Self {
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = Arc::clone(&store);
        let server = ScriptedServer::start(move |stream| serve(stream, Arc::clone(&shared)));
        let server = server.or_fail("a server");
        let api = Self { store, server };
        api.set_ca_bundle(ca_bundle);
        api
    }

    /// Writes a kubeconfig that leads here.
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

    /// Sets the answers to GETs of PVC `name` in namespace `default`, one after the other; the last one stays.
    pub fn set_pvc(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.store).pvcs.insert(name.to_owned(), answers.into_iter().collect());
    }

    /// The PVC `name` is this object.
    pub fn set_object(&self, name: &str, object: Value) {
        self.set_pvc(name, [Answer::Object(object)]);
    }

    /// Replaces the bundle of CAs in the ConfigMap.
    pub fn set_ca_bundle(&self, ca_bundle: &str) {
        self.set_config_map(Answer::Object(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "cdi-uploadserver-signer-bundle", "namespace": "cdi", "resourceVersion": "3" },
            "data": { "ca-bundle.crt": ca_bundle },
        })));
    }

    /// Sets the answer to GETs of the ConfigMap.
    pub fn set_config_map(&self, answer: Answer) {
        lock(&self.store).config_map = Some(answer);
    }

    /// Sets the answer to lists of the CDIConfig.
    pub fn set_list(&self, answer: Answer) {
        lock(&self.store).list = Some(answer);
    }

    /// Sets the answer to its watches.
    pub fn set_watch(&self, answer: Answer) {
        lock(&self.store).watch = Some(answer);
    }

    /// Takes the ConfigMap away.
    pub fn remove_ca_bundle(&self) {
        lock(&self.store).config_map = None;
    }

    /// The TLS profile of the CDIConfig, for who lists it from now on.
    pub fn set_profile(&self, profile: Value) {
        lock(&self.store).profile = profile;
    }

    /// Ends the watches that are open.
    pub fn end_watches(&self) {
        lock(&self.store).ends.notify_waiters();
    }

    /// Method and target of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.store).requests.clone()
    }

    /// The number of times that the PVC `name` was read.
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

/// A watch that stays open. It begins with the object and a bookmark, for clients that ask for no list before.
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
                let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
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
