//! Command lines of the server.

use testkit::user_mistakes;

#[test]
fn a_server_that_cannot_serve_says_why() {
    super::check_serving(user_mistakes! {
        "frobnicate" =>
            2: "'frobnicate'", "unrecognized", "subcommand";
        "serve" =>
            2: "required arguments", "not provided", "--dir <DIR>";
        "serve --dir {files}/nope --insecure --self-signed {files}/certs" =>
            7: "{files}/nope", "is not a directory", "create one first";
        "serve --dir {files}/raw --insecure --self-signed {files}/certs" =>
            7: "{files}/raw", "is not a directory", "create one first";
        "serve --dir {files}/full --insecure --self-signed {files}/certs" =>
            7: "{files}/full/disk.img", "it exists", "--force replaces it";
        "serve --device {files}/nope --insecure --self-signed {files}/certs" =>
            7: "{files}/nope", "is not a block device", "--dir writes to a file";
        "serve --device {files}/raw --insecure --self-signed {files}/certs" =>
            7: "{files}/raw", "is not a block device", "--dir writes to a file";
        "serve --device {files}/directory --insecure --self-signed {files}/certs" =>
            7: "{files}/directory", "is not a block device", "--dir writes to a file";
        "serve --dir {folder} --insecure" =>
            2: "a certificate", "is needed", "--self-signed DIR to create one";
        "serve --dir {folder} --device /dev/null --insecure" =>
            2: "'--dir <DIR>'", "cannot be used with", "'--device <PATH>'";
        "serve --device /dev/null --size 1Gi --insecure" =>
            2: "'--device <PATH>'", "cannot be used with", "'--size <QUANTITY>'";
        "serve --device /dev/null --force --insecure" =>
            2: "'--device <PATH>'", "cannot be used with", "'--force'";
        "serve --dir {folder} --self-signed {files}/certs --size large" =>
            2: "'--size <QUANTITY>'", "not a Kubernetes quantity", "such as 500Mi";
        "serve --dir {folder} --self-signed {files}/certs --size 4GiB" =>
            2: "'--size <QUANTITY>'", "not a Kubernetes quantity", "write 4Gi";
        "serve --dir {folder} --self-signed {files}/certs --scratch {files}/nope" =>
            2: "'--scratch <DIR>'", "does not exist", "create it first";
        "serve --dir {folder} --self-signed {files}/certs --memory 1Mi" =>
            2: "'--memory <QUANTITY>'", "the process itself needs 64Mi", "give at least that";
        "serve --dir {folder} --self-signed {files}/certs --listen nonsense" =>
            2: "'--listen <ADDRESS:PORT>'", "invalid value 'nonsense'", "use ADDRESS:PORT";
        "serve --dir {folder} --self-signed {files}/certs --listen 127.0.0.1:99999" =>
            2: "'--listen <ADDRESS:PORT>'", "\"99999\" is not a port", "use a number up to 65535";
        "serve --dir {folder} --insecure --self-signed {files}/certs --listen {address}" =>
            1: "{address}", "in use", "choose another address or port";
        "serve --dir {folder} --insecure --self-signed {files}/certs --listen 192.0.2.1:8443" =>
            1: "192.0.2.1:8443", "Cannot assign requested address", "choose another address or port";
        "serve --dir {folder} --self-signed {files}/certs --stall-timeout 0" =>
            2: "'--stall-timeout <TIME>'", "invalid value '0'", "at least one second";
        "serve --dir {folder} --self-signed {files}/certs --stall-timeout soon" =>
            2: "'--stall-timeout <TIME>'", "invalid value 'soon'", "with s, m or h";
        "serve --dir {folder} --self-signed {files}/certs -q -v" =>
            2: "'--quiet'", "cannot be used with", "'--verbose";
        "serve --dir {folder} --insecure --tls-cert {files}/certs/server.crt" =>
            2: "required arguments", "not provided", "--tls-key <FILE>";
        "serve --dir {folder} --insecure --tls-key {files}/certs/server.key" =>
            2: "required arguments", "not provided", "--tls-cert <FILE>";
        "serve --dir {folder} --insecure --tls-cert {files}/nope --tls-key {files}/certs/server.key" =>
            2: "{files}/nope", "No such file", "check --tls-cert";
        "serve --dir {folder} --insecure --tls-cert {files}/raw --tls-key {files}/certs/server.key" =>
            2: "{files}/raw", "no items found", "check --tls-cert";
        "serve --dir {folder} --insecure --tls-cert {files}/certs/server.crt --tls-key {files}/raw" =>
            2: "{files}/raw", "no items found", "--tls-key";
        "serve --dir {folder} --insecure --tls-cert {files}/certs/server.crt --tls-key {files}/other.key" =>
            2: "the certificate and the key", "do not match", "check --tls-cert, --tls-key";
        "serve --dir {folder} --insecure --tls-cert {files}/certs/server.crt --tls-key {files}/certs/server.key --self-signed {files}/certs" =>
            2: "'--tls-cert <FILE>'", "cannot be used with", "'--self-signed <DIR>'";
        "serve --dir {folder} --tls-cert {files}/certs/server.crt --tls-key {files}/certs/server.key" =>
            2: "--client-ca FILE", "who may upload?", "--insecure for everybody";
        "serve --dir {folder} --tls-cert {files}/certs/server.crt --tls-key {files}/certs/server.key --client-ca {files}/nope" =>
            2: "{files}/nope", "No such file", "--client-ca";
        "serve --dir {folder} --tls-cert {files}/certs/server.crt --tls-key {files}/certs/server.key --client-ca {files}/raw" =>
            2: "{files}/raw", "no items found", "--client-ca";
        "serve --dir {folder} --tls-cert {files}/certs/server.crt --tls-key {files}/certs/server.key --client-ca {files}/certs/ca.crt --insecure" =>
            2: "'--client-ca <FILE>'", "cannot be used with", "'--insecure'";
        "serve --dir {folder} --insecure --self-signed {files}/raw" =>
            2: "{files}/raw", "cannot write", "--self-signed";
        "-v serve --dir {folder}" =>
            2: "'-v'", "unexpected argument", "options of a subcommand follow its name";
        "completions tcsh" =>
            2: "'tcsh'", "invalid value", "bash, elvish, fish, powershell, zsh";
    });
}
