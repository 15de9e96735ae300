//! A stand-in for a node: it runs the reader pods of a namespace as processes of this machine, and
//! forwards ports to them over WebSocket, as a kubelet does. The API server passes the client's
//! connection on to it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::Cluster;
use super::servers::ADMIN_TOKEN;
use crate::certs::Authority;
use crate::fail::OrFail;
use crate::ports;
use crate::process::{Program, Running};
use crate::serving::ScriptedServer;
use crate::wire::{Request, write_head};

/// Interval at which the pods of the namespace are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// RFC 6455 §1.3.
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The subprotocol in which the first byte of a message is a channel.
const SUBPROTOCOL: &str = "v4.channel.k8s.io";

/// Bytes of a message to the client.
const MESSAGE_BYTES: usize = 32 << 10;

/// A running node. It stops when dropped, with its pods.
pub struct Kubelet {
    node: Arc<Node>,
    thread: Option<JoinHandle<()>>,
    _server: ScriptedServer,
}

struct Node {
    cluster: &'static Cluster,
    namespace: String,
    cloner: PathBuf,
    volumes: Mutex<HashMap<String, PathBuf>>,
    pods: Mutex<HashMap<String, PodProcess>>,
    made: Mutex<Vec<Value>>,
    /// Forwarded ports lead to this server instead of the pod's.
    instead: Mutex<Option<SocketAddr>>,
    forwarded: AtomicU64,
    cuts: watch::Sender<u64>,
    is_stopped: AtomicBool,
}

struct PodProcess {
    /// `None` if it has ended.
    running: Option<Running>,
    address: SocketAddr,
}

impl Kubelet {
    /// Starts a node for the pods in `namespace`, which are all run by the program `cloner`.
    pub fn start(cluster: &'static Cluster, namespace: &str, cloner: &str) -> Self {
        let node = Arc::new(Node {
            cluster,
            namespace: namespace.to_owned(),
            cloner: cloner.into(),
            volumes: Mutex::default(),
            pods: Mutex::default(),
            made: Mutex::default(),
            instead: Mutex::default(),
            forwarded: AtomicU64::new(0),
            cuts: watch::Sender::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let authority = Authority::new().or_fail("an authority");
        let tls: TlsAcceptor = authority.server_config().or_fail("TLS").into();
        let serving = Arc::clone(&node);
        let server = ScriptedServer::start(move |tcp| {
            let (node, tls) = (Arc::clone(&serving), tls.clone());
            async move { node.forward(&tls, tcp).await.ok() }
        })
        .or_fail("a server");
        let path = format!("/api/v1/nodes/{}", node.name());
        cluster.apply(
            &path,
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name()}}),
        );
        cluster.patch(
            &format!("{path}/status"),
            &json!({"status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": server.address().port()}},
            }}),
        );
        let looking = Arc::clone(&node);
        let thread = std::thread::spawn(move || {
            while !looking.is_stopped.load(Ordering::Relaxed) {
                looking.look();
                std::thread::sleep(LOOK);
            }
        });
        Self { node, thread: Some(thread), _server: server }
    }

    /// The name of the node.
    pub fn name(&self) -> String {
        self.node.name()
    }

    /// Makes a bound claim whose volume is the file or device `disk`.
    pub fn create_claim(&self, name: &str, mode: &str, disk: &Path) {
        self.node.cluster.create(
            &format!("/api/v1/namespaces/{}/persistentvolumeclaims", self.node.namespace),
            &json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "volumeMode": mode,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }),
        );
        self.node.cluster.bind_pvc(&self.node.namespace, name, "1Gi");
        lock(&self.node.volumes).insert(name.to_owned(), disk.to_owned());
    }

    /// Forwards ports to `server` instead of the pod.
    pub fn lead_to(&self, server: SocketAddr) {
        *lock(&self.node.instead) = Some(server);
    }

    /// Breaks all forwarded connections.
    pub fn cut(&self) {
        self.node.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The bytes that were forwarded to clients so far.
    pub fn forwarded(&self) -> u64 {
        self.node.forwarded.load(Ordering::Relaxed)
    }

    /// The manifests of all pods so far, as the API server has stored them.
    pub fn made(&self) -> Vec<Value> {
        lock(&self.node.made).clone()
    }

    /// The names of all pods that the namespace has now.
    pub fn pods(&self) -> Vec<String> {
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.node.list().unwrap_or_default().iter().map(name).collect()
    }

    /// Deletes all pods of the namespace, as an administrator would.
    pub fn delete_pods(&self) {
        for name in self.pods() {
            self.node.ask("DELETE", &format!("/{name}"), None);
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.node.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        for (_, pod) in lock(&self.node.pods).drain() {
            pod.kill();
        }
    }
}

impl PodProcess {
    fn kill(self) {
        if let Some(running) = self.running {
            running.signal(Signal::KILL);
            running.wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    fn name(&self) -> String {
        format!("node-of-{}", self.namespace)
    }

    /// Sends a request about a pod. It may fail, because the pod may be gone by now.
    fn ask(&self, method: &str, path: &str, body: Option<(&'static str, &Value)>) -> Option<Value> {
        let path = format!("/api/v1/namespaces/{}/pods{path}", self.namespace);
        let answer = self.cluster.client.ask(ADMIN_TOKEN, method, &path, body).ok()?;
        serde_json::from_slice(&answer.body).ok().filter(|_| answer.status < 300)
    }

    /// Lists the pods; `None` if the API server does not answer.
    fn list(&self) -> Option<Vec<Value>> {
        self.ask("GET", "", None)?["items"].as_array().cloned()
    }

    fn look(&self) {
        let Some(listed) = self.list() else {
            return;
        };
        for pod in &listed {
            let name = pod["metadata"]["name"].as_str().or_fail("a name");
            let is_known = lock(&self.pods).contains_key(name);
            if pod["metadata"]["deletionTimestamp"].is_string() {
                self.kill(name);
                self.ask("DELETE", &format!("/{name}?gracePeriodSeconds=0"), None);
            } else if is_known {
                self.check_end(name);
            } else if pod["spec"]["nodeName"].is_null()
                && pod["spec"]["containers"][0]["command"][0] == "cdi-cloner"
            {
                self.run(name, pod);
            }
        }
        let is_listed = |name: &str| listed.iter().any(|pod| pod["metadata"]["name"] == name);
        let gone: Vec<_> =
            lock(&self.pods).keys().filter(|name| !is_listed(name)).cloned().collect();
        gone.iter().for_each(|name| self.kill(name));
    }

    fn kill(&self, name: &str) {
        if let Some(pod) = lock(&self.pods).remove(name) {
            pod.kill();
        }
    }

    /// Starts the process of a pod, with the claim's disk and a free port instead of those of the
    /// container.
    fn run(&self, name: &str, pod: &Value) {
        lock(&self.made).push(pod.clone());
        let target = json!({"kind": "Node", "name": self.name()});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        self.ask("POST", &format!("/{name}/binding"), Some(("application/json", &binding)));
        let container = &pod["spec"]["containers"][0];
        let words = container["command"].as_array().or_fail("a command").iter();
        let mut words: Vec<String> =
            words.map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
        let claim = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].as_str();
        let disk = lock(&self.volumes).get(claim.or_fail("a claim")).cloned().or_fail("a volume");
        let [address] = ports::free();
        let path = words.iter().position(|word| word.starts_with('/')).or_fail("a path");
        words[path] = disk.display().to_string();
        let port = words.iter().position(|word| word == "--port").or_fail("a port");
        words[port + 1] = address.port().to_string();
        // Other tests' clients may run already, each of which waits for its pod.
        let program = Program::new(&self.cloner).args(words.split_off(1)).beside_others();
        let process = PodProcess { running: Some(program.start()), address };
        lock(&self.pods).insert(name.to_owned(), process);
        self.set_status(name, "Running", &json!({"running": {}}));
    }

    /// Reports the end of a pod's process, once.
    fn check_end(&self, name: &str) {
        let ended = lock(&self.pods)
            .get_mut(name)
            .and_then(|pod| pod.running.take_if(|running| running.has_ended()));
        if let Some(running) = ended {
            let finished = running.wait();
            let (code, message) = (finished.code(), finished.stderr.trim_end().to_owned());
            let phase = if code == 0 { "Succeeded" } else { "Failed" };
            let end = json!({"exitCode": code, "message": message, "reason": "Error"});
            self.set_status(name, phase, &json!({"terminated": end}));
        }
    }

    fn set_status(&self, name: &str, phase: &str, state: &Value) {
        let container = json!({
            "name": "reader", "image": "i", "imageID": "i", "restartCount": 0,
            "ready": phase == "Running", "state": state,
        });
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        let body = ("application/merge-patch+json", &status);
        self.ask("PATCH", &format!("/{name}/status"), Some(body));
    }

    /// Serves one connection of the API server: `/portForward/NAMESPACE/POD?port=PORT`.
    async fn forward(&self, tls: &TlsAcceptor, tcp: TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let mut cuts = self.cuts.subscribe();
        let mut stream = tls.accept(tcp).await?;
        let Some(request) = Request::read(&mut stream).await? else {
            return Ok(());
        };
        let pod = request.path().rsplit('/').next().unwrap_or_default();
        let port = request.target.split("port=").nth(1).and_then(|port| port.parse::<u16>().ok());
        let (Some(port), Some(key)) = (port, request.header("sec-websocket-key")) else {
            return write_head(&mut stream, 400, &[]).await;
        };
        let sha1 = digest::digest(
            &digest::SHA1_FOR_LEGACY_USE_ONLY,
            format!("{key}{WEBSOCKET_GUID}").as_bytes(),
        );
        let headers = [
            ("Upgrade", "websocket".to_owned()),
            ("Connection", "Upgrade".to_owned()),
            ("Sec-WebSocket-Accept", STANDARD.encode(sha1)),
            ("Sec-WebSocket-Protocol", SUBPROTOCOL.to_owned()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value));
        write_head(&mut stream, 101, &headers).await?;
        let (mut from_client, mut to_client) = tokio::io::split(stream);
        for channel in [0, 1] {
            let [low, high] = port.to_le_bytes();
            write_message(&mut to_client, &[channel, low, high]).await?;
        }
        let address = lock(&self.pods).get(pod).map(|pod| pod.address);
        let address = lock(&self.instead).or(address);
        let server = match address {
            Some(address) => TcpStream::connect(address).await,
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                let words = format!("\u{1}error forwarding port {port} to pod {pod}: {error}");
                write_message(&mut to_client, words.as_bytes()).await?;
                return to_client.shutdown().await;
            }
        };
        let (mut from_pod, mut to_pod) = server.into_split();
        let back = async {
            let mut message = vec![0; MESSAGE_BYTES];
            loop {
                match from_pod.read(&mut message[1..]).await? {
                    0 => return to_client.shutdown().await,
                    length => {
                        write_message(&mut to_client, &message[..=length]).await?;
                        self.forwarded.fetch_add(length as u64, Ordering::Relaxed);
                    }
                }
            }
        };
        let forth = async {
            while let Some(message) = read_message(&mut from_client).await? {
                if let Some((0, bytes)) = message.split_first() {
                    to_pod.write_all(bytes).await?;
                }
            }
            Ok(())
        };
        tokio::select! {
            ended = back => ended,
            ended = forth => ended,
            _ = cuts.changed() => Ok(()),
        }
    }
}

/// Writes a binary message in one frame (RFC 6455 §5.2), without a mask.
async fn write_message(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut frame = vec![0x82];
    match u16::try_from(bytes.len()).or_fail("a short message") {
        length @ 0..126 => frame.push(length.to_le_bytes()[0]),
        length => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
    }
    frame.extend_from_slice(bytes);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Reads a frame with a mask. Returns its bytes, or `None` if it closes the connection.
async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let (kind, length) = (stream.read_u8().await?, stream.read_u8().await? & 0x7f);
    let length = match length {
        126 => u64::from(stream.read_u16().await?),
        127 => stream.read_u64().await?,
        short => u64::from(short),
    };
    let mut mask = [0; 4];
    stream.read_exact(&mut mask).await?;
    let mut bytes = vec![0; usize::try_from(length).or_fail("a length")];
    stream.read_exact(&mut bytes).await?;
    bytes.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok((kind & 0x0f != 8).then_some(bytes))
}
