//! Runs a pod as kubelet does.

mod command;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use tempfile::NamedTempFile;
use testkit::fail::OrFail;
use testkit::process::{Program, Running};
use testkit::tools;
use testkit::wait;

use crate::network::{Network, Sandbox};
use crate::podman;
use crate::scrape;
use crate::state::{Terminated, end_of};
use crate::volumes::{Mounted, Objects};

/// Additional pause after an unsuccessful check of a pod. Each check is a TLS handshake, which
/// would disturb concurrent tests that measure time.
const PAUSE: Duration = Duration::from_millis(40);

/// A running pod with its containers. Containers that still run are killed when it is dropped.
pub struct RunningPod<'a> {
    network: &'a Network,
    containers: BTreeMap<String, RunningContainer>,
    // Kept while the containers use them.
    _volumes: BTreeMap<String, Mounted>,
    sandbox: Sandbox,
}

/// Starts a pod as the network's version of CDI makes it: first its init containers, one after
/// another, then all its containers together. Fails the test if an init container fails.
pub fn start<'a>(network: &'a Network, pod: &Pod, objects: &Objects<'_>) -> RunningPod<'a> {
    let pod = network.version().map_or_else(|| pod.clone(), |version| version.change_pod(pod));
    let spec = pod.spec.as_ref().or_fail("a pod has a spec");
    let sandbox = network.sandbox();
    let volumes: BTreeMap<_, _> = spec
        .volumes
        .iter()
        .flatten()
        .map(|volume| (volume.name.clone(), mount(volume, objects)))
        .collect();
    let launch = |container| RunningContainer::start(spec, container, &sandbox, &volumes, objects);
    for container in spec.init_containers.iter().flatten() {
        let ended = launch(container).wait();
        assert_eq!(ended.code, 0, "init container {}: {}", container.name, ended.log);
    }
    let containers = spec.containers.iter();
    let containers = containers.map(|container| (container.name.clone(), launch(container)));
    RunningPod { network, containers: containers.collect(), _volumes: volumes, sandbox }
}

impl RunningPod<'_> {
    /// The address of the pod.
    pub fn address(&self) -> Ipv4Addr {
        self.sandbox.address()
    }

    /// Waits until a container ends, and removes it from the pod.
    #[track_caller]
    pub fn wait(&mut self, container: &str) -> Terminated {
        self.containers.remove(container).or_fail(container).wait()
    }

    /// Waits until the readiness probe succeeds: HTTPS GET `/healthz` (contract §5.4).
    #[track_caller]
    pub fn wait_until_ready(&self) {
        let ready = |pod: &Self| {
            let answer = scrape::get(pod.network, pod.address(), "/healthz");
            answer.is_ok_and(|answer| answer.status == 200)
        };
        self.wait_for("is not ready", ready);
    }

    /// Waits for the first scrape in which the progress `metric` of `owner` is at least `at_least`
    /// percent, and returns it.
    #[track_caller]
    pub fn wait_for_progress(&self, metric: &str, owner: &str, at_least: f64) -> f64 {
        let mut percent = None;
        self.wait_for("shows no progress", |pod| {
            let answer = scrape::get(pod.network, pod.address(), "/metrics");
            percent = answer
                .ok()
                .and_then(|answer| scrape::progress(&answer.text(), metric, owner))
                .filter(|percent| *percent >= at_least);
            percent.is_some()
        });
        percent.or_fail(metric)
    }

    /// Runs a command as `kubectl exec` does. Returns the exit code and the output.
    pub fn exec(&self, container: &str, words: &[&str]) -> (i32, String) {
        let name = &self.containers.get(container).or_fail(container).name;
        let words = podman::words(&[&["exec", name], words].concat());
        let finished = Program::new(tools::find("podman")).args(words).start().wait();
        (finished.code(), finished.stdout)
    }

    /// The log of a container so far.
    pub fn log(&self, container: &str) -> String {
        let container = self.containers.get(container).or_fail(container);
        container.process.stderr_so_far()
    }

    #[track_caller]
    fn wait_for(&self, complaint: &str, mut done: impl FnMut(&Self) -> bool) {
        let logs = || self.containers.keys().map(|name| self.log(name)).collect::<String>();
        let complaint = || format!("the pod {complaint}: {}", logs());
        wait::until(complaint, || {
            let is_done = done(self);
            if !is_done {
                std::thread::sleep(PAUSE);
            }
            is_done
        });
    }
}

/// A running container.
struct RunningContainer {
    /// The name of the container in podman.
    name: String,
    process: Running,
    message: NamedTempFile,
    /// True if the end of its log is the message of a failure without one.
    falls_back: bool,
}

impl RunningContainer {
    fn start(
        spec: &PodSpec,
        container: &Container,
        sandbox: &Sandbox,
        volumes: &BTreeMap<String, Mounted>,
        objects: &Objects<'_>,
    ) -> Self {
        static CONTAINERS: AtomicUsize = AtomicUsize::new(0);
        let number = CONTAINERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("cdi-{}-{number}", std::process::id());
        // As kubelet makes it: an empty file that everybody may write.
        let message = NamedTempFile::new().or_fail("a termination log");
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(message.path(), everybody).or_fail("a termination log");
        let words = command::run(&name, spec, container, sandbox, volumes, objects, message.path());
        let program = Program::new(tools::find("podman")).args(words);
        let falls_back =
            container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        Self { name, process: program.start(), message, falls_back }
    }

    #[track_caller]
    fn wait(self) -> Terminated {
        let finished = self.process.wait();
        let out_of_memory = ["inspect", "--format", "{{.State.OOMKilled}}", &self.name];
        let out_of_memory = tools::run("podman", podman::words(&out_of_memory)).trim() == "true";
        remove(&self.name);
        let message = std::fs::read_to_string(self.message.path()).or_fail("a termination log");
        // Standard output comes first, because containers write to it only at their start.
        let log = finished.stdout.clone() + &finished.stderr;
        let message = if self.falls_back && finished.code() != 0 && message.is_empty() {
            end_of(&log)
        } else {
            message
        };
        Terminated { code: finished.code(), out_of_memory, message, log }
    }
}

impl Drop for RunningPod<'_> {
    fn drop(&mut self) {
        for container in self.containers.values() {
            remove(&container.name);
        }
    }
}

fn remove(name: &str) {
    tools::run("podman", podman::words(&["rm", "--force", "--ignore", "--time=0", name]));
}

fn mount(volume: &Volume, objects: &Objects<'_>) -> Mounted {
    if let Some(claim) = &volume.persistent_volume_claim {
        let claim = objects.claims.get(claim.claim_name.as_str());
        Mounted::Claim(claim.or_fail(format!("no claim of volume {}", volume.name)).path())
    } else if let Some(secret) = &volume.secret {
        Mounted::files(objects, secret.secret_name.as_deref().unwrap_or_default())
    } else if let Some(map) = &volume.config_map {
        Mounted::files(objects, &map.name)
    } else if volume.empty_dir.is_some() {
        Mounted::empty()
    } else if let Some(image) = &volume.image {
        Mounted::Image(image.reference.clone().or_fail("an image volume has a reference"))
    } else {
        panic!("volume {} is of a kind that this kubelet does not know", volume.name)
    }
}
