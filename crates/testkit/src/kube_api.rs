//! A fake Kubernetes API server for the upload proxy, over plain HTTP. It has the three kinds of
//! objects that the proxy reads: PVCs in any state, even ones that a real cluster shows only
//! briefly, the CDIConfig, and the ConfigMap with the CA of the upload servers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::fail::OrFail;
use crate::serving::{After, Exchange, Handler, HttpServer, lock};

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
struct Objects {
    pvcs: BTreeMap<String, VecDeque<Answer>>,
    config_map: Option<Answer>,
    /// Response to lists of the CDIConfig, if not the current config.
    list: Option<Answer>,
    watch: Option<Answer>,
}

#[derive(Default)]
struct Store {
    objects: Mutex<Objects>,
    /// Ends the open watches.
    ends: Notify,
}

/// A running API server. It stops when dropped.
pub struct KubeApi(HttpServer<Store>);

impl KubeApi {
    /// Starts a server without PVCs whose ConfigMap contains `ca_bundle`.
    pub fn start(ca_bundle: &str) -> Self {
        let api = Self(HttpServer::serve(Store::default(), None).or_fail("a server"));
        api.set_ca_bundle(ca_bundle);
        api
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.0.handler.objects)
    }

    /// Writes a kubeconfig for this server.
    pub fn write_kubeconfig(&self, file: &Path) {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", self.0.address()) } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        std::fs::write(file, config.to_string()).or_fail(file.display());
    }

    /// Sets the responses to GETs of the PVC `name` in the namespace `default`, one after another.
    /// The last one is repeated.
    pub fn set_pvc(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.objects().pvcs.insert(name.to_owned(), answers.into_iter().collect());
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
        self.objects().config_map = Some(answer);
    }

    /// Sets the response to lists of the CDIConfig.
    pub fn set_list(&self, answer: Answer) {
        self.objects().list = Some(answer);
    }

    /// Sets the response to watches of the CDIConfig.
    pub fn set_watch(&self, answer: Answer) {
        self.objects().watch = Some(answer);
    }

    /// Deletes the ConfigMap.
    pub fn remove_ca_bundle(&self) {
        self.objects().config_map = None;
    }

    /// Ends the open watches.
    pub fn end_watches(&self) {
        self.0.handler.ends.notify_waiters();
    }

    /// Methods and targets of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        let requests = self.0.requests().into_iter().map(|recorded| recorded.request);
        requests.map(|request| format!("{} {}", request.method, request.target)).collect()
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

impl Handler for Store {
    async fn handle(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        let answer = if exchange.request.target.contains("watch=") {
            let scripted = lock(&self.objects).watch.clone();
            match scripted {
                Some(answer) => answer,
                None => return self.watch(exchange).await,
            }
        } else {
            lock(&self.objects).answer(exchange.request.path())
        };
        let (status, body) = match answer {
            Answer::Object(object) => (200, object),
            Answer::Late(pause, object) => {
                tokio::time::sleep(pause).await;
                (200, object)
            }
            Answer::Status(code, reason, message) => (code, failure(code, reason, &message)),
            Answer::Silence => std::future::pending().await,
            Answer::Bytes(bytes) => {
                exchange.client.write_all(&bytes).await?;
                return Ok(After::Close);
            }
            Answer::Endless { begin, piece, pause } => {
                exchange.client.write_all(&begin).await?;
                loop {
                    exchange.client.write_all(&piece).await?;
                    tokio::time::sleep(pause).await;
                }
            }
        };
        exchange.respond(status, vec![json_type()], body.to_string().as_bytes()).await
    }
}

fn json_type() -> (String, String) {
    ("Content-Type".to_owned(), "application/json".to_owned())
}

impl Store {
    /// Serves a watch that stays open. It begins with the object and a bookmark, for clients that
    /// do not list first.
    async fn watch(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        let chunked = ("Transfer-Encoding".to_owned(), "chunked".to_owned());
        exchange.write_head(200, &[json_type(), chunked]).await?;
        let bookmark = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
            "metadata": { "resourceVersion": "9", "annotations": { "k8s.io/initial-events-end": "true" } },
        });
        for (kind, object) in [("ADDED", config()), ("BOOKMARK", bookmark)] {
            let line = format!("{}\n", json!({ "type": kind, "object": object }));
            exchange.write_piece(line.as_bytes(), true).await?;
        }
        self.ends.notified().await;
        Ok(After::Close)
    }
}

impl Objects {
    fn answer(&mut self, path: &str) -> Answer {
        if path == "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs" {
            if let Some(answer) = &self.list {
                return answer.clone();
            }
            return Answer::Object(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfigList",
                "metadata": { "resourceVersion": "9" }, "items": [config()],
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
}

fn config() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
        "metadata": { "name": "config", "uid": "uid-config", "resourceVersion": "5" },
        "spec": { "tlsSecurityProfile": null }, "status": {},
    })
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
