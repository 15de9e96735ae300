//! Command lines, images and upload proxies.

#[test]
#[ignore = "server: Kubernetes, nginx"]
fn mistakes_on_the_command_line_are_explained() {
    super::check(
        "arguments",
        &[
            "frobnicate",
            "uplaod {files}/raw dv/x",
            "upload",
            "upload {files}/raw",
            "upload {files}/raw x",
            "upload {files}/raw vm/x",
            "upload {files}/raw dv/",
            "upload {files}/raw dv/UPPER",
            "upload {files}/raw dv/x --size 10g",
            "upload {files}/raw dv/x --size ten",
            "upload {files}/raw dv/x --access-mode RWZ",
            "upload {files}/raw dv/x --volume-mode Tape",
            "upload {files}/raw dv/x --encoding fast",
            "upload {files}/raw dv/x --timeout 0",
            "upload {files}/raw dv/x --timeout soon",
            "upload {files}/raw dv/x --timeout 5d",
            "upload {files}/raw dv/x --dry-run cluster",
            "upload {files}/raw dv/x --dry-run",
            "upload {files}/raw dv/x --dry-run client --no-create",
            "upload {files}/raw dv/x -o yaml",
            "upload {files}/raw dv/x --dry-run client -o table",
            "upload {files}/raw dv/x --checksum md5:00",
            "upload {files}/raw dv/x -q -v",
            "status never-was",
            "status -A dv/x",
            "status -A --namespace x",
            "status -o table",
            "token pvc/there -o yaml",
            "token",
            "completions tcsh",
        ],
    );
}

#[test]
#[ignore = "server: Kubernetes, nginx"]
fn mistakes_about_images_and_proxies_are_explained() {
    super::check(
        "uploads",
        &[
            "upload {files}/nope dv/x {nowhere}",
            "upload {files}/directory dv/x {nowhere}",
            "upload {files}/fifo dv/x {here}",
            "upload {files}/empty dv/x {here}",
            "upload {files}/page.html dv/x {here}",
            "upload {files}/paper.pdf dv/x {here}",
            "upload {files}/disk.zip dv/x {here}",
            "upload {files}/damaged.qcow2 dv/x {here}",
            "upload {files}/child.qcow2 dv/x {here}",
            "upload - dv/x {nowhere}",
            "upload https://example.org/disk.img dv/x {nowhere}",
            "upload {files}/raw dv/x --archive {nowhere}",
            "upload {files}/disk.qcow2 dv/x --archive {nowhere}",
            "upload {files}/raw dv/never-was --no-create {proxy} {here}",
            "upload {files}/raw pvc/never-was --no-create {proxy} {here}",
            "upload {files}/raw pvc/there {proxy} {here}",
            "upload {files}/raw dv/x {proxy} --kubeconfig {cluster} --namespace none",
            "upload {files}/raw pvc/x {proxy} --kubeconfig {cluster} --namespace none",
            "upload {files}/files.tar dv/x --archive {proxy} {here}",
            "upload {files}/raw dv/x {here}",
            "upload {files}/raw pvc/there --no-create {here}",
            "upload {files}/raw pvc/there --no-create --uploadproxy-url nonsense:// {here}",
            "upload {files}/raw pvc/there --no-create --uploadproxy-url http://{http} {here}",
            "upload {files}/raw pvc/closed --no-create {proxy} --timeout 2s {here}",
            "upload {files}/raw pvc/untrusted --no-create --uploadproxy-url https://{https} {here}",
            "upload {files}/raw dv/x --uploadproxy-url https://{https} {here}",
            "upload {files}/raw pvc/web --no-create --uploadproxy-url https://{https} --insecure {here}",
            "upload {files}/raw pvc/plain --no-create --uploadproxy-url https://{http} --timeout 2s {here}",
            "upload {files}/raw pvc/there --no-create {proxy} --cacert {files}/nope {here}",
            "upload {files}/raw pvc/there --no-create {proxy} --cacert {files}/raw {here}",
        ],
    );
}
