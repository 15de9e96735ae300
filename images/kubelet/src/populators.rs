//! The pods that CDI's controller makes for Forklift's populators, `populate-<PVC UID>`.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::controller::{CLAIM, Host, OWNER, pod, spec, volume_of_claim, worker};
use crate::images::Image;
use crate::volumes::Claim;

/// The Secret whose keys become environment variables of the container.
pub const SECRET: &str = "secret";

/// The name of the container.
pub const CONTAINER: &str = "populate";

/// Makes a pod that runs this program with these additional flags.
pub fn populator(program: &str, claim: &Claim, flags: &[&str], hosts: &[Host<'_>]) -> Pod {
    let mut container = worker(CONTAINER, Image::Importer);
    container["command"] = json!([program]);
    let (owner, size) = (format!("--owner-uid={OWNER}"), format!("--pvc-size={}", claim.bytes()));
    let secret = format!("--secret-name={SECRET}");
    let path = if claim.is_block() {
        container["volumeDevices"] = json!([{ "name": "target", "devicePath": "/dev/block" }]);
        "--volume-path=/dev/block"
    } else {
        container["volumeMounts"] = json!([{ "name": "target", "mountPath": "/mnt/" }]);
        "--volume-path=/mnt/disk.img"
    };
    container["args"] = json!([&[path, &owner, &size, &secret], flags].concat());
    container["envFrom"] = json!([{ "secretRef": { "name": SECRET } }]);
    container["ports"] = json!([{ "name": "metrics", "containerPort": 8443, "protocol": "TCP" }]);
    pod(&spec(&[container], &[volume_of_claim("target", CLAIM)], hosts))
}
