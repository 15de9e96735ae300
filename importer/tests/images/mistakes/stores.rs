//! Container registries, object stores, clouds and virtualization managers.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const REGISTRIES: &[UserMistake] = user_mistakes! {
    "import --retries 0 docker://{closed}/vm:x {target}" =>
        3: "{closed}", "connection refused", "is its server running?";
    "import --retries 0 docker://{registry}/vm:program {target}" =>
        3: "{registry}", "it does not speak TLS", "is it http://?";
    "import --insecure docker://{registry}/vm:program {target}" =>
        3: "docker://{registry}/vm:program", "no file in its folder `disk`", "is it another image?";
    "import --insecure docker://{registry}/vm:gone {target}" =>
        3: "manifest gone in {registry}/vm", "404 Not Found: MANIFEST_UNKNOWN", "check the name and the tag";
    "import --insecure docker://{registry}/none {target}" =>
        3: "manifest latest in {registry}/none", "404 Not Found", "check the name";
    "import --insecure --architecture mips docker://{registry}/vm:multi {target}" =>
        3: "architecture \"mips\"", "no image found", "there are: linux/s390x, linux/arm64 (--architecture chooses)";
    "import --insecure --architecture AMD64 docker://{registry}/vm:multi {target}" =>
        3: "architecture \"AMD64\"", "no image found", "--architecture chooses";
    "import --insecure docker://{locked}/vm:program {target}" =>
        3: "{locked}/vm", "401 Unauthorized", "check --user and --password-file";
    "import --insecure --user joe --password-file {files}/key.json docker://{locked}/vm:program {target}" =>
        3: "{locked}/vm", "401 Unauthorized", "check --user and --password-file";
    "import docker://UPPER/x:y:z {target}" =>
        2: "\"UPPER/x:y:z\"", "invalid reference", "may have lower-case letters";
    "import docker:// {target}" =>
        2: "\"\"", "invalid reference", "may have lower-case letters";
    "import oci:{files}/layout:none {target}" =>
        3: "{files}/layout", "it has no image none", "there are: test";
    "import oci:{files}/layout:test {target}" =>
        3: "{files}/layout", "no file in its folder `disk`", "is it another image?";
    "import oci:{files}/nope:test {target}" =>
        3: "{files}/nope/index.json", "no such file or directory", "oci:DIRECTORY:NAME";
    "import oci:{files}/raw {target}" =>
        3: "{files}/raw/index.json", "not a directory", "oci:DIRECTORY:NAME";
    "import oci-archive:{files}/raw {target}" =>
        3: "{files}/raw", "does not look like a tar archive", "oci-archive: reads the tar of an image layout";
};

pub(super) const OBJECT_STORES: &[UserMistake] = user_mistakes! {
    "AWS_ENDPOINT_URL=minio import s3://b/k {target}" =>
        3: "AWS_ENDPOINT_URL: minio", "is not the URL of a server", "write https://HOST:PORT";
    "AWS_ENDPOINT_URL=ftp://minio import s3://b/k {target}" =>
        3: "AWS_ENDPOINT_URL: ftp://minio", "is not the URL of a server", "write https://HOST:PORT";
    "AWS_ENDPOINT_URL=http://{closed} import --retries 0 --anonymous s3://b/k {target}" =>
        3: "http://{closed}/b/k", "connection refused", "is its server running?";
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://nokey/k {target}" =>
        3: "\"nokey/k\"", "NoSuchKey", "check the name of the object";
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://nobucket/k {target}" =>
        3: "\"nobucket/k\"", "NoSuchBucket", "check the name of the bucket";
    "AWS_ENDPOINT_URL=http://{http} import --anonymous s3://denied/k {target}" =>
        3: "\"denied/k\"", "AccessDenied", "use keys that may read the object";
    "AWS_ENDPOINT_URL=http://{http} import s3://denied/k {target}" =>
        3: "\"denied/k\"", "was accessed without keys", "give them with --user and --password-file";
    "AWS_ENDPOINT_URL=http://{http} import --user joe --password-file {files}/password s3://signature/k {target}" =>
        3: "\"signature/k\"", "SignatureDoesNotMatch", "check --password-file";
    "AWS_ENDPOINT_URL=https://{https} import --anonymous s3://nokey/k {target}" =>
        3: "https://{https}/nokey/k", "not signed by a trusted authority", "--ca-dir DIR";
    "import s3://bucket {target}" =>
        3: "\"s3://bucket\"", "it must name a bucket and an object", "BUCKET/KEY";
    "import s3:// {target}" =>
        3: "\"s3://\"", "it must name a bucket and an object", "BUCKET/KEY";
    "import s3:///key {target}" =>
        3: "\"s3:///key\"", "it must name a bucket and an object", "BUCKET/KEY";
    "import --key-file /etc/passwd gs://b/k {target}" =>
        3: "/etc/passwd", "is not a service account key", "check --key-file";
    "import --key-file {files}/key.json gs://b/k {target}" =>
        3: "{files}/key.json", "is not a service account key", "check --key-file";
    "import --key-file {files}/nope gs://b/k {target}" =>
        3: "{files}/nope", "or cannot be read", "check --key-file";
    "GOOGLE_APPLICATION_CREDENTIALS={files}/nope import gs://b/k {target}" =>
        3: "{files}/nope", "or cannot be read", "GOOGLE_APPLICATION_CREDENTIALS";
    "import gs://bucket {target}" =>
        3: "\"gs://bucket\"", "it must name a bucket and an object", "BUCKET/OBJECT";
    "import gs:// {target}" =>
        3: "\"gs://\"", "it must name a bucket and an object", "BUCKET/OBJECT";
};

pub(super) const CLOUDS: &[UserMistake] = user_mistakes! {
    "import glance+https://cloud.invalid/v2/images/1 {target}" =>
        2: "OS_USERNAME", "is not set or empty", "give --user and --password-file";
    "OS_AUTH_URL=https://cloud.invalid/v3 OS_USERNAME=joe import glance+https://cloud.invalid/v2/images/1 {target}" =>
        2: "OS_PASSWORD", "is not set or empty", "set what your cloud needs";
    "OS_AUTH_URL=https://other.invalid/v3 OS_USERNAME=joe OS_PASSWORD=hunter2 import glance+https://cloud.invalid/v3?image=x {target}" =>
        2: "OS_AUTH_URL", "are for other.invalid", "--ambient-identity";
    "import ovirt+https://engine/ovirt-engine/api/disks/1 {target}" =>
        2: "oVirt", "needs a user name and a password", "give --user and --password-file";
    "import --user joe --password-file {files}/password ovirt+https://engine/ovirt-engine/api {target}" =>
        2: "an oVirt disk", "is given as", "ovirt+https://ENGINE/ovirt-engine/api/disks/ID";
    "import --retries 0 --user joe --password-file {files}/password ovirt+https://{closed}/ovirt-engine/api/disks/1 {target}" =>
        3: "https://{closed}", "connection refused", "is its server running?";
    "import --insecure --user joe --password-file {files}/password ovirt+https://{https}/ovirt-engine/api/disks/1 {target}" =>
        3: "127.0.0.1", "is not an oVirt engine (404 Not Found)", "check the address";
    "import vddk+https://v/?vm=1&disk=d {target}" =>
        2: "vSphere", "needs a user name and a password", "give --user and --password-file";
    "import --user joe --password-file {files}/password vddk+https://v/ {target}" =>
        2: "a VMware disk", "is given as", "vddk+https://VCENTER/?vm=UUID&disk=";
    "import --thumbprint XYZ --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}" =>
        3: "\"XYZ\"", "is not a certificate thumbprint", "expected 40 hex characters";
    "import --format qcow2 --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}" =>
        2: "--format", "is always read as raw", "are for images";
    "import --ova --user joe --password-file {files}/password vddk+https://{closed}/?vm=1&disk=d {target}" =>
        2: "--ova", "is always read as raw", "are for images";
};
