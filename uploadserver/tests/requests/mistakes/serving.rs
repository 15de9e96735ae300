//! Command lines of the server.

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn a_server_that_cannot_serve_says_why() {
    super::check_serving(&[
        "frobnicate",
        "serve",
        "serve --dir {files}/nope --insecure --self-signed {files}/certs",
        "serve --dir {files}/raw --insecure --self-signed {files}/certs",
        "serve --dir {files}/full --insecure --self-signed {files}/certs",
        "serve --device {files}/nope --insecure --self-signed {files}/certs",
        "serve --device {files}/raw --insecure --self-signed {files}/certs",
        "serve --device {files}/directory --insecure --self-signed {files}/certs",
        "serve --dir {folder} --insecure",
        "serve --dir {folder} --device /dev/null --insecure",
        "serve --device /dev/null --size 1Gi --insecure",
        "serve --device /dev/null --force --insecure",
        "serve --dir {folder} --self-signed {files}/certs --size large",
        "serve --dir {folder} --self-signed {files}/certs --scratch {files}/nope",
        "serve --dir {folder} --self-signed {files}/certs --memory 1Mi",
        "serve --dir {folder} --self-signed {files}/certs --listen nonsense",
        "serve --dir {folder} --self-signed {files}/certs --listen 127.0.0.1:99999",
        "serve --dir {folder} --insecure --self-signed {files}/certs --listen {address}",
        "serve --dir {folder} --insecure --self-signed {files}/certs --listen 192.0.2.1:8443",
        "serve --dir {folder} --self-signed {files}/certs --stall-timeout 0",
        "serve --dir {folder} --self-signed {files}/certs --stall-timeout soon",
        "serve --dir {folder} --self-signed {files}/certs -q -v",
        "serve --dir {folder} --insecure --cert {files}/certs/server.crt",
        "serve --dir {folder} --insecure --key {files}/certs/server.key",
        "serve --dir {folder} --insecure --cert {files}/nope --key {files}/certs/server.key",
        "serve --dir {folder} --insecure --cert {files}/raw --key {files}/certs/server.key",
        "serve --dir {folder} --insecure --cert {files}/certs/server.crt --key {files}/raw",
        "serve --dir {folder} --insecure --cert {files}/certs/server.crt --key {files}/other.key",
        "serve --dir {folder} --insecure --cert {files}/certs/server.crt --key {files}/certs/server.key --self-signed {files}/certs",
        "serve --dir {folder} --cert {files}/certs/server.crt --key {files}/certs/server.key",
        "serve --dir {folder} --cert {files}/certs/server.crt --key {files}/certs/server.key --cacert {files}/nope",
        "serve --dir {folder} --cert {files}/certs/server.crt --key {files}/certs/server.key --cacert {files}/raw",
        "serve --dir {folder} --cert {files}/certs/server.crt --key {files}/certs/server.key --cacert {files}/certs/ca.crt --insecure",
        "serve --dir {folder} --insecure --self-signed {files}/raw",
        "-v serve --dir {folder}",
        "completions tcsh",
    ]);
}
