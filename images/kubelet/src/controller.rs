//! Makes the pods that CDI's controllers make (contract §5), with everything that affects the
//! containers. Fields that only the scheduler uses (labels, annotations, placement) are left out.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testkit::fail::OrFail;

use crate::images::Image;
use crate::volumes::{Claim, QEMU};

/// The UID of the claim's owner, which is a label of the progress metric.
pub const OWNER: &str = "9f6b1f4e-2c5f-4d53-9a4c-4a2c3c1c3a11";

/// The name by which pods mount the claim that they write or clone.
pub const CLAIM: &str = "disk";

/// A DNS name by which pods reach a server, and the server's address.
pub type Host<'a> = (&'a str, std::net::Ipv4Addr);

/// A folder of an import pod at which a ConfigMap or Secret is mounted, and the variable that
/// names it.
pub type MountPoint = (&'static str, Option<&'static str>);

/// Certificates of the source.
pub const CERTIFICATES: MountPoint = ("/certs", Some("IMPORTER_CERT_DIR"));

/// Certificates of the proxy.
pub const PROXY_CERTIFICATES: MountPoint = ("/proxycerts/", Some("IMPORTER_PROXY_CERT_DIR"));

/// Certificates of the cluster (cdi#4236).
pub const CLUSTER_CERTIFICATES: MountPoint = ("/trustedcacerts/", Some("IMPORTER_TRUSTED_CA_DIR"));

/// Options of VMware's library.
pub const LIBRARY_OPTIONS: MountPoint = ("/vddk-args", None);

/// The settings in which import pods differ.
#[derive(Default)]
pub struct Import<'a> {
    /// Environment variables in addition to, or instead of, those of every import pod.
    pub env: &'a [(&'a str, &'a str)],
    /// A Secret with `accessKeyId` and `secretKey`.
    pub secret: Option<&'a str>,
    /// Names of ConfigMaps and Secrets that are mounted.
    pub mounts: &'a [(MountPoint, &'a str)],
    /// Host names of servers.
    pub hosts: &'a [Host<'a>],
    /// The name of a scratch claim, mounted at `/scratch`, for imports in which the controller
    /// makes one in advance.
    pub scratch: Option<&'a str>,
    /// For a node pull: the user's image.
    pub node_pull: Option<&'a str>,
    /// Node pull by an image volume (cdi#4237): the user's image.
    pub image_volume: Option<&'a str>,
    /// For VMware: the user's image with VMware's library.
    pub side_car: Option<&'a str>,
}

/// Variables that are empty unless a source needs them.
const EMPTY: &str = "IMPORTER_ENDPOINT IMPORTER_DISK_ID IMPORTER_UUID IMPORTER_PULL_METHOD IMPORTER_READY_FILE \
    IMPORTER_DONE_FILE IMPORTER_ENV_FILE IMPORTER_IMAGE_ROOT_DIR IMPORTER_BACKING_FILE IMPORTER_THUMBPRINT \
    http_proxy https_proxy no_proxy IMPORTER_CURRENT_CHECKPOINT IMPORTER_PREVIOUS_CHECKPOINT \
    IMPORTER_FINAL_CHECKPOINT CACHE_MODE IMPORTER_REGISTRY_IMAGE_ARCHITECTURE \
    IMPORTER_REGISTRY_IMAGE_LAYER_DIGEST IMPORTER_CHECKSUM";

/// The import pod, `importer-<pvc>` (contract §5.2).
pub fn importer(claim: &Claim, import: &Import<'_>) -> Pod {
    let mut env: Vec<_> = EMPTY.split_whitespace().map(|name| variable(name, "")).collect();
    env.extend([
        variable("IMPORTER_SOURCE", "none"),
        variable("IMPORTER_CONTENTTYPE", "kubevirt"),
        variable("IMPORTER_IMAGE_SIZE", &claim.bytes().to_string()),
        variable("OWNER_UID", OWNER),
        variable("FILESYSTEM_OVERHEAD", overhead(claim)),
        variable("INSECURE_TLS", "false"),
        variable("PREALLOCATION", "false"),
    ]);
    for (name, key) in
        [("IMPORTER_ACCESS_KEY_ID", "accessKeyId"), ("IMPORTER_SECRET_KEY", "secretKey")]
    {
        env.extend(import.secret.map(|secret| variable_of_secret(name, secret, key)));
    }
    let mut volumes = vec![volume_of_claim("cdi-data-vol", CLAIM)];
    let mut mounts = Vec::new();
    for ((folder, variable_name), object) in import.mounts {
        env.extend(variable_name.map(|name| variable(name, folder)));
        mounts.push(json!({ "name": folder, "mountPath": folder, "readOnly": true }));
        volumes.push(json!({ "name": folder, "configMap": { "name": object } }));
    }
    if let Some(scratch) = import.scratch {
        mounts.push(json!({ "name": "cdi-scratch-vol", "mountPath": "/scratch" }));
        volumes.push(volume_of_claim("cdi-scratch-vol", scratch));
    }
    if let Some(image) = import.image_volume {
        env.push(variable("IMPORTER_ENV_FILE", "/shared/env"));
        env.push(variable("IMPORTER_IMAGE_ROOT_DIR", "/image"));
        mounts.push(json!({ "name": "image-volume", "mountPath": "/image" }));
        volumes.push(json!({ "name": "image-volume", "image": { "reference": image } }));
    }
    if import.node_pull.or(import.image_volume).is_some() {
        mounts.push(shared_mount());
        volumes.push(json!({ "name": "shared-volume", "emptyDir": {} }));
    }
    if import.side_car.is_some() {
        mounts.push(library_mount());
        volumes.push(json!({ "name": "vddk-vol-mount", "emptyDir": {} }));
    }
    override_with(&mut env, import.env);
    let image = if import.side_car.is_some() { Image::ImporterVddk } else { Image::Importer };
    let mut container = worker("importer", image);
    container["args"] = json!(["-v=3"]);
    container["env"] = json!(env);
    attach(&mut container, claim, "cdi-data-vol", "/data", mounts);
    let mut spec = spec(&[container], &volumes, import.hosts);
    if let Some(image) = import.node_pull {
        spec["initContainers"] = json!([program_bringer("cdi-containerimage-server", "server")]);
        spec["containers"].as_array_mut().or_fail("containers").push(image_server(image));
    }
    if let Some(image) = import.image_volume {
        let bringer = program_bringer("cdi-env-extractor", "env-extractor");
        spec["initContainers"] = json!([bringer, env_extractor(image)]);
    }
    if let Some(image) = import.side_car {
        spec["initContainers"] = json!([library_bringer(image)]);
    }
    pod(&spec)
}

/// The part of a file system's disk that it needs for itself.
fn overhead(claim: &Claim) -> &'static str {
    if claim.is_block() { "0" } else { "0.06" }
}

/// The init container that provides VMware's library: the entry point of the user's image copies
/// it.
fn library_bringer(image: &str) -> Value {
    let mut container = user_container("vddk-side-car", image, &[]);
    container["volumeMounts"] = json!([library_mount()]);
    container
}

fn library_mount() -> Value {
    json!({ "name": "vddk-vol-mount", "mountPath": "/opt" })
}

/// The init container of a node pull, which copies a program to the shared volume.
fn program_bringer(program: &str, name: &str) -> Value {
    let copy = format!("cp /usr/bin/{program} /shared/{name}");
    user_container("init", Image::Importer.name(), &["sh", "-c", &copy])
}

/// The init container of a node pull by an image volume that is the user's image.
fn env_extractor(image: &str) -> Value {
    let command = ["/shared/env-extractor", "-env-file", "/shared/env"];
    user_container("env-extractor", image, &command)
}

/// The container of a node pull that runs the user's image.
fn image_server(image: &str) -> Value {
    let words = "-p 8100 -image-dir /disk -ready-file /shared/ready -done-file /shared/done";
    let mut container = user_container("server", image, &["/shared/server"]);
    container["args"] = json!(words.split(' ').collect::<Vec<_>>());
    container
}

/// A container of an import pod with the shared volume and another image than the importer's.
fn user_container(name: &str, image: &str, command: &[&str]) -> Value {
    let mut container = worker(name, Image::Importer);
    container["image"] = json!(image);
    container["volumeMounts"] = json!([shared_mount()]);
    if !command.is_empty() {
        container["command"] = json!(command);
    }
    container
}

fn shared_mount() -> Value {
    json!({ "name": "shared-volume", "mountPath": "/shared" })
}

/// The upload pod, `cdi-upload-<pvc>` (contract §5.4). Its certificates are in the Secret
/// `secret`, and it accepts the client named `client`.
pub fn upload_server(claim: &Claim, secret: &str, client: &str, env: &[(&str, &str)]) -> Pod {
    let volumes = vec![
        volume_of_claim("cdi-data-vol", CLAIM),
        json!({ "name": "server-certs", "secret": { "secretName": secret } }),
    ];
    let mut container = worker("cdi-upload-server", Image::UploadServer);
    container["args"] = json!(["-v=3"]);
    let mut variables = vec![
        variable("TLS_KEY_FILE", "/etc/tls/tls.key"),
        variable("TLS_CERT_FILE", "/etc/tls/tls.crt"),
        variable("CLIENT_CERT_FILE", "/etc/tls/ca.crt"),
        variable("UPLOAD_IMAGE_SIZE", &claim.bytes().to_string()),
        variable("CLIENT_NAME", client),
        variable("FILESYSTEM_OVERHEAD", overhead(claim)),
        variable("PREALLOCATION", "false"),
        variable("TLS_MIN_VERSION", "VersionTLS12"),
        variable("TLS_CIPHERS", ""),
    ];
    if claim.is_block() {
        variables.push(variable("DESTINATION", "/dev/cdi-block-volume"));
    }
    override_with(&mut variables, env);
    container["env"] = json!(variables);
    let certificates = json!({ "name": "server-certs", "mountPath": "/etc/tls", "readOnly": true });
    attach(&mut container, claim, "cdi-data-vol", "/data", vec![certificates]);
    pod(&spec(&[container], &volumes, &[]))
}

/// The source pod of a clone, `<uid>-source-pod` (contract §5.5), which clones `claim` to `url`.
/// The client's certificate is in the Secret `secret`.
pub fn clone_source(
    claim: &Claim,
    secret: &str,
    ca: &str,
    url: &str,
    preallocate: bool,
    hosts: &[Host<'_>],
) -> Pod {
    let volumes = vec![volume_of_claim("cdi-data-vol", CLAIM)];
    let mut container = worker("cdi-clone-source", Image::Cloner);
    let mount = "/var/run/cdi/clone/source";
    let (mode, point) =
        if claim.is_block() { ("block", "/dev/cdi-block-volume") } else { ("filesystem", mount) };
    container["env"] = json!([
        variable_of_secret("CLIENT_KEY", secret, "tls.key"),
        variable_of_secret("CLIENT_CERT", secret, "tls.crt"),
        variable("SERVER_CA_CERT", ca),
        variable("UPLOAD_URL", url),
        variable("OWNER_UID", OWNER),
        variable("PREALLOCATION", if preallocate { "true" } else { "false" }),
        variable("VOLUME_MODE", mode),
        variable("MOUNT_POINT", point),
    ]);
    attach(&mut container, claim, "cdi-data-vol", mount, Vec::new());
    if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        for mount in mounts {
            mount["readOnly"] = json!(true);
        }
    }
    pod(&spec(&[container], &volumes, hosts))
}

/// The pod that determines the virtual size of a claim's disk (contract §7.4, Appendix B).
pub fn size_detection(claim: &Claim) -> Pod {
    let mut container = worker("size-detection", Image::Importer);
    container["command"] = json!(["/usr/bin/cdi-image-size-detection"]);
    container["args"] = json!(["-image-path", "/dev/cdi/disk.img"]);
    attach(&mut container, claim, "cdi-data-vol", "/dev/cdi", Vec::new());
    pod(&spec(&[container], &[volume_of_claim("cdi-data-vol", CLAIM)], &[]))
}

/// The pod of a DataImportCron's poller, which asks `url` for its digest (Appendix B). The token
/// of its ServiceAccount is in the Secret `account`, and `server` is the address of the API
/// server.
pub fn poller(
    cron: &str,
    url: &str,
    account: &str,
    server: (&str, u16),
    env: &[(&str, &str)],
    hosts: &[Host<'_>],
) -> Pod {
    let mut container = worker("cdi-source-update-poller", Image::Importer);
    container["command"] =
        json!(["/usr/bin/cdi-source-update-poller", "-ns", "default", "-cron", cron, "-url", url]);
    let mut variables = vec![
        // Kubernetes sets these variables in every container.
        variable("KUBERNETES_SERVICE_HOST", server.0),
        variable("KUBERNETES_SERVICE_PORT", &server.1.to_string()),
    ];
    override_with(&mut variables, env);
    container["env"] = json!(variables);
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    container["volumeMounts"] = json!([{ "name": "token", "mountPath": token, "readOnly": true }]);
    let volumes = vec![json!({ "name": "token", "secret": { "secretName": account } })];
    pod(&spec(&[container], &volumes, hosts))
}

/// A worker's container with the settings that all workers share: the restricted security context
/// (§5.2) and the default resources (§0.6).
pub fn worker(name: &str, image: Image) -> Value {
    json!({
        "name": name,
        "image": image.name(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": { "cpu": "100m", "memory": "60M" },
            "limits": { "cpu": "750m", "memory": "600M" },
        },
        "securityContext": {
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
            "allowPrivilegeEscalation": false,
            "runAsNonRoot": true,
            "runAsUser": QEMU,
            // As in cdi#4245. A pod that works with it works without it too.
            "readOnlyRootFilesystem": true,
        },
    })
}

/// A pod with one container and no volumes.
pub fn bare(container: Value) -> Pod {
    pod(&spec(&[container], &[], &[]))
}

pub(crate) fn spec(containers: &[Value], volumes: &[Value], hosts: &[Host<'_>]) -> Value {
    let aliases = hosts
        .iter()
        .map(|(name, address)| json!({ "ip": address.to_string(), "hostnames": [name] }));
    json!({
        "restartPolicy": "OnFailure",
        "enableServiceLinks": false,
        "securityContext": { "fsGroup": QEMU },
        "containers": containers,
        "volumes": volumes,
        "hostAliases": aliases.collect::<Vec<_>>(),
    })
}

pub(crate) fn pod(spec: &Value) -> Pod {
    serde_json::from_value(json!({ "spec": spec })).or_fail("a pod")
}

/// Mounts the claim at `folder`, or attaches its device.
fn attach(
    container: &mut Value,
    claim: &Claim,
    volume: &str,
    folder: &str,
    mut mounts: Vec<Value>,
) {
    if claim.is_block() {
        container["volumeDevices"] =
            json!([{ "name": volume, "devicePath": "/dev/cdi-block-volume" }]);
    } else {
        mounts.push(json!({ "name": volume, "mountPath": folder }));
    }
    container["volumeMounts"] = json!(mounts);
}

pub(crate) fn volume_of_claim(name: &str, claim: &str) -> Value {
    json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } })
}

fn variable(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

fn variable_of_secret(name: &str, secret: &str, key: &str) -> Value {
    json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } })
}

/// Replaces or adds variables.
fn override_with(variables: &mut Vec<Value>, with: &[(&str, &str)]) {
    for (name, value) in with {
        variables.retain(|known| known.get("name").and_then(Value::as_str) != Some(name));
        variables.push(variable(name, value));
    }
}
