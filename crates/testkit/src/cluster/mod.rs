//! A Kubernetes cluster for tests: a real API server with RBAC and an etcd on loopback, without
//! nodes and controllers.
//!
//! Objects change only when a test writes to them: no pod runs, and no claim gets a volume.

pub mod cdi;
mod client;
pub mod crons;
pub mod data_volumes;
pub mod imports;
pub mod kubelet;
pub(crate) mod servers;
pub mod tokens;
pub mod users;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certs::Authority;
use crate::fail::OrFail;
use crate::https::Response;
use crate::wait;
use client::Client;
use servers::{Place, Server};

/// Lifetime of a ServiceAccount's token: longer than any test.
const TOKEN_SECONDS: u32 = 2 * 60 * 60;

/// A running cluster. It ends when dropped; one in a `static` ends with the process.
pub struct Cluster {
    place: Place,
    client: Client,
    kubeconfigs: AtomicUsize,
    // Dropped in this order, so that no program looks for something that is already gone.
    api: Mutex<Server>,
    _etcd: Server,
    _folder: TempDir,
}

impl Cluster {
    /// Starts both servers and waits until they are ready. This takes five seconds, or minutes if
    /// the API server must be built first.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        let place = Place::prepare(folder.path(), &authority);
        let client =
            Client { address: place.api, config: authority.client_config().or_fail("TLS") };
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

    /// Kills the API server. Written objects are kept.
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

    /// The file with the CA certificate of the API server.
    pub fn ca_file(&self) -> PathBuf {
        self.place.folder.join("ca.crt")
    }

    /// Writes a kubeconfig file with this token. It exists as long as the cluster.
    pub fn kubeconfig_for(&self, token: &str) -> PathBuf {
        let number = self.kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let path = self.place.folder.join(format!("kubeconfig-{number}"));
        let server = format!("https://{}", self.place.api);
        // JSON is valid YAML.
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

    /// Writes a kubeconfig file with a token of this ServiceAccount.
    #[track_caller]
    pub fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
        self.kubeconfig_for(&self.service_account_token(namespace, name))
    }

    /// Requests a token of this ServiceAccount through the TokenRequest API.
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

    /// Makes a namespace, unless it exists.
    #[track_caller]
    pub fn create_namespace(&self, name: &str) {
        let path = format!("/api/v1/namespaces/{name}");
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&path, &namespace);
    }

    /// Returns the object at `path`. Like the following methods, it acts as administrator and
    /// fails the test with the API server's response unless that is a success.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.client.succeed("GET", path, None)
    }

    /// Adds `object` to the collection at `path`.
    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.client.succeed("POST", path, Some(("application/json", object)))
    }

    /// Replaces the object at `path` with `object`.
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

    /// Makes the object at `path` or changes the existing one, so that it has all fields of
    /// `object`.
    #[track_caller]
    pub fn apply(&self, path: &str, object: &Value) -> Value {
        let path = format!("{path}?fieldManager=testkit&force=true");
        let object = ("application/apply-patch+yaml", object);
        self.client.succeed("PATCH", &path, Some(object))
    }

    /// Deletes the object at `path`.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Value {
        self.client.succeed("DELETE", path, None)
    }

    /// Sends a GET with this token and returns the response.
    #[track_caller]
    pub fn get_as(&self, token: &str, path: &str) -> Response {
        let answer = self.client.ask(token, "GET", path, None);
        answer.or_fail(format!("GET {path}: no answer from the API server"))
    }

    /// Waits until `effect` shows that an earlier write has taken effect.
    #[track_caller]
    fn wait_for(&self, what: &str, effect: impl Fn() -> bool) {
        let complaint = || format!("{what}\n{}", self.api().log());
        wait::until(complaint, effect);
    }

    fn api(&self) -> MutexGuard<'_, Server> {
        self.api.lock().ok().or_fail("the API server did not start")
    }
}
