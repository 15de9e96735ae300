//! Translates a container's spec to a command line of podman.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use testkit::fail::OrFail;

use crate::images::Image;
use crate::network::Sandbox;
use crate::podman;
use crate::volumes::{Mounted, Objects, QEMU};

/// Variables of Services in the pod's namespace whose names resemble our variables. Kubelet adds
/// them unless `enableServiceLinks` is false.
const SERVICE_LINKS: [&str; 3] = [
    "CDI_WORKERS_PORT=tcp://10.96.0.7:443",
    "IMPORTER_SERVICE_HOST=10.96.0.8",
    "LISTEN_PORT=tcp://10.96.0.9:8080",
];

/// Returns the arguments of `podman run` for `container`, in the foreground and with this `name`.
/// The container writes its termination message to the file `message`.
pub(super) fn run(
    name: &str,
    spec: &PodSpec,
    container: &Container,
    sandbox: &Sandbox,
    volumes: &BTreeMap<String, Mounted>,
    objects: &Objects<'_>,
    message: &Path,
) -> Vec<OsString> {
    // podman tries to raise these limits, which a runtime inside another container may not do.
    let basic = [
        "run",
        "--name",
        name,
        "--log-driver=none",
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
    ];
    let mut words: Vec<OsString> = podman::words(&basic).iter().map(Into::into).collect();
    words.push(format!("--network=ns:{}", sandbox.path().display()).into());
    words.push(format!("--volume={}:/dev/termination-log", message.display()).into());
    for alias in spec.host_aliases.iter().flatten() {
        for host in alias.hostnames.iter().flatten() {
            words.push(format!("--add-host={host}:{}", alias.ip).into());
        }
    }
    words.extend(security(spec, container).into_iter().map(Into::into));
    words.extend(limits(container).into_iter().map(Into::into));
    words.extend(mounts(container, volumes).into_iter().map(Into::into));
    if spec.enable_service_links != Some(false) {
        words.extend(SERVICE_LINKS.map(|variable| format!("--env={variable}").into()));
    }
    for source in container.env_from.iter().flatten() {
        let secret = source.secret_ref.as_ref().or_fail("variables from a Secret");
        let keys = objects.files.get(secret.name.as_str()).or_fail(&secret.name);
        words.extend(keys.iter().map(|(key, value)| format!("--env={key}={value}").into()));
    }
    for variable in container.env.iter().flatten() {
        words.push(format!("--env={}={}", variable.name, value(variable, objects)).into());
    }
    let mut rest = container.command.clone().unwrap_or_default();
    rest.extend(container.args.iter().flatten().cloned());
    if container.command.is_some() {
        // `command` replaces the image's entry point.
        words.push("--entrypoint=[]".into());
    }
    let image = container.image.as_deref().or_fail("a container has an image");
    let ours = Image::ALL.into_iter().find(|ours| ours.name() == image);
    words.push(ours.map_or_else(|| image.into(), |ours| ours.id().into()));
    words.extend(rest.into_iter().map(Into::into));
    words
}

fn security(spec: &PodSpec, container: &Container) -> Vec<String> {
    let context = container.security_context.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let mut words = Vec::new();
    if let Some(user) = context.run_as_user.or(of_pod.run_as_user) {
        words.push(format!("--user={user}"));
    }
    if of_pod.fs_group.is_some() {
        words.push(format!("--group-add={QEMU}"));
    }
    let dropped = context.capabilities.and_then(|capabilities| capabilities.drop);
    words.extend(dropped.into_iter().flatten().map(|name| format!("--cap-drop={name}")));
    if context.allow_privilege_escalation == Some(false) {
        words.push("--security-opt=no-new-privileges".to_owned());
    }
    if context.read_only_root_filesystem == Some(true) {
        // Otherwise podman mounts writable folders that Kubernetes does not have.
        words.extend(["--read-only", "--read-only-tmpfs=false"].map(str::to_owned));
    }
    words
}

fn limits(container: &Container) -> Vec<String> {
    let resources = container.resources.clone().unwrap_or_default();
    let limits = resources.limits.unwrap_or_default();
    let mut words = Vec::new();
    if let Some(memory) = limits.get("memory") {
        let bytes = program::quantity::parse_bytes(&memory.0).or_fail(&memory.0);
        // This value limits the sum of memory and swap, so that no swap is used.
        words.extend([format!("--memory={bytes}b"), format!("--memory-swap={bytes}b")]);
    }
    if let Some(cpu) = limits.get("cpu") {
        let thousandths: f64 = cpu.0.trim_end_matches('m').parse().or_fail(&cpu.0);
        let cpus = if cpu.0.ends_with('m') { thousandths / 1000.0 } else { thousandths };
        words.push(format!("--cpus={cpus}"));
    }
    words
}

fn mounts(container: &Container, volumes: &BTreeMap<String, Mounted>) -> Vec<String> {
    let volume = |name: &str| volumes.get(name).or_fail(format!("no volume {name}"));
    let folders = container.volume_mounts.iter().flatten().map(|mount| {
        volume(&mount.name).mount_option(&mount.mount_path, mount.read_only == Some(true))
    });
    let devices = container.volume_devices.iter().flatten();
    let devices = devices.map(|device| {
        format!("--device={}:{}", volume(&device.name).path().display(), device.device_path)
    });
    folders.chain(devices).collect()
}

fn value(variable: &EnvVar, objects: &Objects<'_>) -> String {
    if let Some(value) = &variable.value {
        return value.clone();
    }
    let from = variable.value_from.clone().unwrap_or_default();
    match from.secret_key_ref {
        Some(key) => objects.file(&key.name, &key.key).to_owned(),
        None => String::new(),
    }
}
