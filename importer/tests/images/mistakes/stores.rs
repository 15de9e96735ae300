//! Container registries, object stores, clouds and virtualization managers.

pub(super) const REGISTRIES: &[&str] = &[
    "import --retries 0 docker://{closed}/vm:x {target}",
    "import --retries 0 docker://{registry}/vm:program {target}",
    "import --insecure docker://{registry}/vm:program {target}",
    "import --insecure docker://{registry}/vm:gone {target}",
    "import --insecure docker://{registry}/none {target}",
    "import --insecure --architecture mips docker://{registry}/vm:multi {target}",
    "import --insecure --architecture AMD64 docker://{registry}/vm:multi {target}",
    "import --insecure docker://{locked}/vm:program {target}",
    "import --insecure --user joe --password-file {files}/key.json docker://{locked}/vm:program {target}",
    "import docker://UPPER/x:y:z {target}",
    "import docker:// {target}",
    "import oci:{files}/layout:none {target}",
    "import oci:{files}/layout:test {target}",
    "import oci:{files}/nope:test {target}",
    "import oci:{files}/raw {target}",
    "import oci-archive:{files}/raw {target}",
];

pub(super) const OBJECT_STORES: &[&str] = &[
    "AWS_ENDPOINT_URL=minio import s3://b/k {target}",
    "AWS_ENDPOINT_URL=ftp://minio import s3://b/k {target}",
    "AWS_ENDPOINT_URL=http://{closed} import --retries 0 --anonymous s3://b/k {target}",
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://nokey/k {target}",
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://nobucket/k {target}",
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://denied/k {target}",
    "AWS_ENDPOINT_URL=http://{http} import s3://denied/k {target}",
    "AWS_ENDPOINT_URL=http://{http} import --user joe --password-file {files}/password s3://signature/k {target}",
    "AWS_ENDPOINT_URL=https://{https} import --anonymous s3://nokey/k {target}",
    "import s3://bucket {target}",
    "import s3:// {target}",
    "import s3:///key {target}",
    "GOOGLE_APPLICATION_CREDENTIALS={files}/nope import gs://b/k {target}",
    "import gs://bucket {target}",
    "import gs:// {target}",
];

pub(super) const CLOUDS: &[&str] = &[
    "import glance+https://cloud.invalid/v2/images/1 {target}",
    "OS_AUTH_URL=https://cloud.invalid/v3 OS_USERNAME=joe import glance+https://cloud.invalid/v2/images/1 {target}",
    "OS_AUTH_URL=https://other.invalid/v3 OS_USERNAME=joe OS_PASSWORD=hunter2 import glance+https://cloud.invalid/v3?image=x {target}",
    "import ovirt+https://engine/ovirt-engine/api/disks/1 {target}",
    "import --user joe --password-file {files}/password ovirt+https://engine/ovirt-engine/api {target}",
    "import --retries 0 --user joe --password-file {files}/password ovirt+https://{closed}/ovirt-engine/api/disks/1 {target}",
    "import --insecure --user joe --password-file {files}/password ovirt+https://{https}/ovirt-engine/api/disks/1 {target}",
    "import vddk+https://v/?vm=1&disk=d {target}",
    "import --user joe --password-file {files}/password vddk+https://v/ {target}",
    "import --thumbprint XYZ --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}",
    "import --format qcow2 --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}",
    "import --ova --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}",
];
