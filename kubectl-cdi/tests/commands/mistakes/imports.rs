//! Sources of imports.

use testkit::user_mistakes;

#[test]
fn mistakes_about_sources_are_explained() {
    super::check(user_mistakes! {
        "import https://example.org/disk.img" =>
            2: "required arguments", "not provided", "<TARGET>";
        "import example.org/disk.img dv/x {here}" =>
            2: "example.org/disk.img", "is not a source that a cluster can fetch", "use http://";
        "import ./disk.img dv/x {here}" =>
            2: "./disk.img", "is not a source that a cluster can fetch", "`kubectl cdi upload` for a file";
        "import ftp://example.org/disk.img dv/x {here}" =>
            2: "ftp://example.org", "is not a source that a cluster can fetch", "use http://";
        "import nbd://example.org/disk dv/x {here}" =>
            2: "nbd://example.org", "is not a source that a cluster can fetch", "use http://";
        "import http:// dv/x {here}" =>
            2: "\"http://\"", "empty host", "give --size";
        "import http://{http}/gone dv/x {here}" =>
            3: "http://{http}/gone", "does not exist (404)", "check the URL";
        "import http://{http}/page dv/x {here}" =>
            4: "the image", "this is text, not a disk", "check the address";
        "import http://{http}/empty dv/x {here}" =>
            4: "the image", "it is empty", "check what it should contain";
        "import http://{closedport}/x dv/x {here}" =>
            2: "http://{closedport}/x", "connection refused", "give --size";
        "import http://no-such-host.invalid/x dv/x {here}" =>
            2: "http://no-such-host.invalid/x", "cannot find no-such-host.invalid", "give --size";
        "import https://{https}/raw dv/x {here}" =>
            2: "https://{https}/raw", "UnknownIssuer", "give --size";
        "import docker://{closedport}/vm dv/x {here}" =>
            2: "{closedport}", "connection refused", "give --size";
        "import docker://UPPER/x:y:z dv/x {here}" =>
            2: "\"UPPER/x:y:z\"", "invalid reference", "may have lower-case letters";
        "import s3://bucket/key dv/x {here}" =>
            2: "the disk", "only http://, https:// and docker:// images can be inspected", "give --size";
        "import s3://bucket dv/x --size 1Gi {here}" =>
            2: "\"s3://bucket\"", "must name a bucket and an object", "BUCKET/KEY";
        "import gs://bucket/key dv/x {here}" =>
            2: "the disk", "only http://, https:// and docker:// images can be inspected", "give --size";
        "import gs://bucket/key dv/x --endpoint http://minio --size 1Gi {here}" =>
            2: "--endpoint", "is only for", "s3://";
        "import http://{http}/raw dv/x --endpoint http://minio --size 1Gi {here}" =>
            2: "--endpoint", "is only for", "s3://";
        "import s3://bucket/key dv/x --endpoint minio --size 1Gi" =>
            2: "'--endpoint <URL>'", "invalid value 'minio'", "use http://HOST, https://HOST";
        "import s3://bucket/key dv/x --endpoint http://minio/path --size 1Gi" =>
            2: "'--endpoint <URL>'", "invalid value 'http://minio/path'", "or either with a port";
        "import http://{http}/raw dv/x --size 1Gi --checksum foo {here}" =>
            2: "--checksum", "got 'foo'", "expected 'algorithm:hash'";
        "import http://{http}/raw dv/x --size 1Gi --checksum md5:12 {here}" =>
            2: "--checksum", "invalid md5 hash length", "expected 32 hex characters";
        "import docker://quay.io/x/y dv/x --size 1Gi --checksum md5:00000000000000000000000000000000 {here}" =>
            2: "--checksum", "is only for", "http:// and https://";
        "import http://{http}/raw dv/x --size 1Gi --timeout 0" =>
            2: "'--timeout <TIME>'", "invalid value '0'", "at least one second";
        "import http://{http}/raw pvc/there --size 1Gi {here}" =>
            7: "pvc/there", "already exists", "choose another name";
        "import http://{http}/raw dv/x --size 1Gi --kubeconfig {stranger}" =>
            7: "the API server at", "rejected your credentials (401)", "log in again";
    });
}
