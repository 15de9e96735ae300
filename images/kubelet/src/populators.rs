//! The pods that CDI's controller of Forklift's populators makes, `populate-<PVC UID>`.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::controller::{CLAIM, Host, OWNER, pod, spec, volume_of_claim, worker};
use crate::images::Image;
use crate::volumes::Claim;

/// The Secret whose keys are the variables of the container.
pub const SECRET: &str = "secret";

/// The container.
pub const CONTAINER: &str = "populate";

/// A pod that runs the program of this name, with flags on top of those that all have.
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
