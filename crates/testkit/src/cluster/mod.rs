//! A Kubernetes cluster for tests: a real API server with RBAC and an etcd, on loopback, without nodes and controllers.
//!
//! Nothing but what a test writes happens to its objects: no pod runs, no claim gets a volume.

pub mod cdi;
mod client;
pub mod crons;
pub mod data_volumes;
pub(crate) mod servers;
pub mod tokens;
pub mod users;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certs::Authority;
use crate::fail::OrFail;
use crate::https::Response;
use crate::wait;
use client::Client;
use servers::{Place, Server};

/// Time that the API server may take until something that was written has its effect.
const EFFECT_PATIENCE: Duration = Duration::from_secs(30);

/// Time for which a ServiceAccount's token is good: more than any test takes.
const TOKEN_SECONDS: u32 = 2 * 60 * 60;

/// A cluster that runs. Ends when dropped, and with the process for one in a `static`.
pub struct Cluster {
    place: Place,
    client: Client,
    kubeconfigs: AtomicUsize,
    // In this order, so that nothing looks for what is gone.
    api: Mutex<Server>,
    _etcd: Server,
    _folder: TempDir,
}

impl Cluster {
    /// Starts both servers and waits until they are ready: five seconds, or minutes if the API server must be built first.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        let place = Place::prepare(folder.path(), &authority);
        let client = Client { address: place.api, config: authority.client_config().or_fail("TLS") };
        let etcd = place.start_etcd();
        let api = place.start_api(|| client.is_ready());
        Self {
            api: Mutex::new(api),
            _etcd: etcd,
            place,
            client,
            kubeconfigs: AtomicUsize::new(0),
            _folder: folder,
        }
    }

    /// Kills the API server; what was written stays.
    pub fn stop_api(&self) {
        self.api().stop();
    }

    /// Starts the API server again, at the same address.
    pub fn restart_api(&self) {
        let mut api = self.api();
        api.stop();
        *api = self.place.start_api(|| self.client.is_ready());
    }

    /// The address at which the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.place.api
    }

    /// The certificate of the authority that signed the API server's.
    pub fn ca_file(&self) -> PathBuf {
        self.place.folder.join("ca.crt")
    }

    /// A kubeconfig file with this token; it lasts as long as the cluster.
    pub fn kubeconfig_for(&self, token: &str) -> PathBuf {
        let number = self.kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let path = self.place.folder.join(format!("kubeconfig-{number}"));
        let server = format!("https://{}", self.place.api);
        // What is JSON is YAML as well.
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": self.ca_file()}}],
            "users": [{"name": "test", "user": {"token": token}}],
        });
        std::fs::write(&path, kubeconfig.to_string()).or_fail(path.display());
        path
    }

    /// A kubeconfig file with a token of this ServiceAccount.
    #[track_caller]
    pub fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
        self.kubeconfig_for(&self.service_account_token(namespace, name))
    }

    /// A token of this ServiceAccount, from the TokenRequest API.
    #[track_caller]
    pub fn service_account_token(&self, namespace: &str, name: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        });
        let answer = self.create(&path, &request);
        let token = answer["status"]["token"].as_str();
        token.or_fail(format!("no token in {answer}")).to_owned()
    }

    /// Makes a namespace, unless it is there.
    #[track_caller]
    pub fn create_namespace(&self, name: &str) {
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&path, &namespace);
    }

    /// The object at `path`. This and the following act as administrator and fail the test with the API server's answer unless
    /// it is a success.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.client.succeed("GET", path, None)
    }

    /// Adds `object` to the collection at `path`.
    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.client.succeed("POST", path, Some(("application/json", object)))
    }

    /// Puts `object` in the place of the one at `path`.
    #[track_caller]
    pub fn replace(&self, path: &str, object: &Value) -> Value {
        self.client.succeed("PUT", path, Some(("application/json", object)))
    }

    /// Changes the object at `path` by a merge patch (RFC 7396): `null` removes a field.
    #[track_caller]
    pub fn patch(&self, path: &str, change: &Value) -> Value {
        let change = ("application/merge-patch+json", change);
        self.client.succeed("PATCH", path, Some(change))
    }

    /// Makes the object at `path`, or changes the one that is there, so that it has all fields of `object`.
    #[track_caller]
    pub fn apply(&self, path: &str, object: &Value) -> Value {
        let path = format!("{path}?fieldManager=testkit&force=true");
        let object = ("application/apply-patch+yaml", object);
        self.client.succeed("PATCH", &path, Some(object))
    }

    /// Removes the object at `path`.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Value {
        self.client.succeed("DELETE", path, None)
    }

    /// The answer of the API server to a client with this token.
    #[track_caller]
    pub fn get_as(&self, token: &str, path: &str) -> Response {
        let answer = self.client.ask(token, "GET", path, None);
        answer.or_fail(format!("GET {path}: no answer from the API server"))
    }

    /// Waits until `effect` shows that something written before has arrived.
    #[track_caller]
    fn wait_for(&self, what: &str, effect: impl Fn() -> bool) {
        let complaint = || format!("{what}\n{}", self.api().log());
        wait::until(EFFECT_PATIENCE, complaint, effect);
    }

    fn api(&self) -> MutexGuard<'_, Server> {
        self.api.lock().ok().or_fail("the API server did not start")
    }
}
