//! Sources of imports.

#[test]
#[ignore = "server: Kubernetes, nginx"]
fn mistakes_about_sources_are_explained() {
    super::check(
        "imports",
        &[
            "import https://example.org/disk.img",
            "import example.org/disk.img dv/x {here}",
            "import ./disk.img dv/x {here}",
            "import ftp://example.org/disk.img dv/x {nowhere}",
            "import nbd://example.org/disk dv/x {here}",
            "import http:// dv/x {here}",
            "import http://{http}/gone dv/x {here}",
            "import http://{http}/page dv/x {here}",
            "import http://{http}/empty dv/x {here}",
            "import http://{http}/half.gz dv/x {here}",
            "import http://{http}/child.qcow2 dv/x {here}",
            "import http://{http}/locked dv/x {here}",
            "import http://{closedport}/x dv/x {here}",
            "import http://no-such-host.invalid/x dv/x {here}",
            "import https://{https}/raw dv/x {here}",
            "import docker://{closedport}/vm dv/x {here}",
            "import docker://UPPER/x:y:z dv/x {here}",
            "import s3://bucket/key dv/x {here}",
            "import s3://bucket dv/x --size 1Gi {nowhere}",
            "import gs://bucket/key dv/x {here}",
            "import gs://bucket/key dv/x --endpoint http://minio --size 1Gi {nowhere}",
            "import http://{http}/raw dv/x --endpoint http://minio --size 1Gi {here}",
            "import s3://bucket/key dv/x --endpoint minio --size 1Gi",
            "import s3://bucket/key dv/x --endpoint http://minio/path --size 1Gi",
            "import http://{http}/raw dv/x --size 1Gi --checksum foo {nowhere}",
            "import http://{http}/raw dv/x --size 1Gi --checksum md5:12 {here}",
            "import docker://quay.io/x/y dv/x --size 1Gi --checksum md5:00000000000000000000000000000000 {here}",
            "import http://{http}/raw dv/x --size 1Gi --timeout 0",
            "import gs://bucket/key dv/x --cert-configmap ca --size 1Gi {here}",
            "import http://{http}/raw pvc/there --size 1Gi {here}",
            "import http://{http}/raw dv/never-was --no-create {here}",
            "import http://{http}/raw pvc/never-was --no-create {here}",
            "import http://{http}/raw dv/x --size 1Gi --kubeconfig {stranger}",
        ],
    );
}
