//! Command lines, images and upload proxies.

use testkit::user_mistakes;

#[test]
fn mistakes_on_the_command_line_are_explained() {
    super::check(user_mistakes! {
        "frobnicate" =>
            2: "'frobnicate'", "unrecognized", "subcommand";
        "uplaod {files}/raw dv/x" =>
            2: "'uplaod'", "unrecognized subcommand", "exists: 'upload'";
        "upload" =>
            2: "required arguments", "not provided", "<IMAGE> <TARGET>";
        "upload {files}/raw" =>
            2: "required arguments", "not provided", "<TARGET>";
        "upload {files}/raw x" =>
            2: "'x' for '<TARGET>'", "invalid value", "use dv/NAME or pvc/NAME";
        "upload {files}/raw vm/x" =>
            2: "'vm/x' for '<TARGET>'", "invalid value", "use dv/NAME or pvc/NAME";
        "upload {files}/raw dv/" =>
            2: "'<TARGET>'", "cannot be a name", "use small letters, digits";
        "upload {files}/raw dv/UPPER" =>
            2: "'<TARGET>'", "\"UPPER\" cannot be a name", "use small letters, digits";
        "upload {files}/raw dv/x --size 10g" =>
            2: "'--size <SIZE>'", "\"10g\" has an unknown unit", "write 10G or 10Gi";
        "upload {files}/raw dv/x --size ten" =>
            2: "'--size <SIZE>'", "not a Kubernetes quantity", "such as 500Mi";
        "upload {files}/raw dv/x --access-mode RWZ" =>
            2: "'--access-mode <MODE>'", "invalid value 'RWZ'", "ReadWriteMany (RWX)";
        "upload {files}/raw dv/x --volume-mode Tape" =>
            2: "'--volume-mode <MODE>'", "invalid value 'Tape'", "use Filesystem or Block";
        "upload {files}/raw dv/x --encoding fast" =>
            2: "'--encoding <ENCODING>'", "invalid value 'fast'", "auto, none";
        "upload {files}/raw dv/x --timeout 0" =>
            2: "'--timeout <TIME>'", "invalid value '0'", "at least one second";
        "upload {files}/raw dv/x --timeout soon" =>
            2: "'--timeout <TIME>'", "invalid value 'soon'", "with s, m or h";
        "upload {files}/raw dv/x --timeout 5d" =>
            2: "'--timeout <TIME>'", "invalid value '5d'", "with s, m or h";
        "upload {files}/raw dv/x --dry-run cluster" =>
            2: "'--dry-run <WHERE>'", "invalid value 'cluster'", "client, server";
        "upload {files}/raw dv/x --dry-run" =>
            2: "'--dry-run <WHERE>'", "none was supplied", "client";
        "upload {files}/raw dv/x --dry-run client --no-create" =>
            2: "'--dry-run <WHERE>'", "cannot be used with", "'--no-create'";
        "upload {files}/raw dv/x -o yaml" =>
            2: "required arguments", "not provided", "--dry-run";
        "upload {files}/raw dv/x --dry-run client -o table" =>
            2: "'--output <FORM>'", "invalid value 'table'", "yaml, json";
        "upload {files}/raw dv/x --checksum md5:00" =>
            2: "'--checksum <ALG:HEX>'", "invalid md5 hash length", "expected 32 hex characters, got 2";
        "upload {files}/raw dv/x -q -v" =>
            2: "'--quiet'", "cannot be used with", "'--verbose";
        "status never-was" =>
            2: "'[TARGET]'", "invalid value 'never-was'", "use dv/NAME or pvc/NAME";
        "status -A dv/x" =>
            2: "'--all-namespaces'", "cannot be used with", "'[TARGET]'";
        "status -A --namespace x" =>
            2: "'--all-namespaces'", "cannot be used with", "'--namespace <NAME>'";
        "status -o table" =>
            2: "'--output <FORM>'", "invalid value 'table'", "json";
        "token pvc/there -o yaml" =>
            2: "'--output <FORM>'", "invalid value 'yaml'", "name, json, curl";
        "token" =>
            2: "required arguments", "not provided", "<TARGET>";
        "completions tcsh" =>
            2: "'tcsh'", "invalid value", "bash, elvish, fish, powershell, zsh";
    });
}

#[test]
fn mistakes_about_images_and_proxies_are_explained() {
    super::check(user_mistakes! {
        "upload {files}/nope dv/x {here}" =>
            3: "{files}/nope", "no such file or directory", "check the path";
        "upload {files}/directory dv/x {here}" =>
            3: "{files}/directory", "is not a regular file", "pipes and directories are not supported";
        "upload {files}/fifo dv/x {here}" =>
            3: "{files}/fifo", "is not a regular file", "pipes and directories are not supported";
        "upload {files}/empty dv/x {here}" =>
            4: "{files}/empty", "it is empty", "check what it should contain";
        "upload {files}/page.html dv/x {here}" =>
            4: "{files}/page.html", "this is text, not a disk", "`qemu-img convert -f raw -O qcow2`";
        "upload {files}/paper.pdf dv/x {here}" =>
            4: "{files}/paper.pdf", "a PDF document, not a disk", "`qemu-img convert -f raw -O qcow2`";
        "upload {files}/disk.zip dv/x {here}" =>
            4: "{files}/disk.zip", "zip compression is not supported", "recompress the image";
        "upload {files}/damaged.qcow2 dv/x {here}" =>
            4: "{files}/damaged.qcow2", "unsupported cluster size", "must be 2^9 to 2^21";
        "upload {files}/child.qcow2 dv/x {here}" =>
            4: "{files}/child.qcow2", "a backing file \"/etc/base.img\"", "flatten it first";
        "upload - dv/x {here}" =>
            2: "standard input", "is not supported", "write the image to a file, and upload that";
        "upload https://example.org/disk.img dv/x {here}" =>
            2: "https://example.org/disk.img", "is not a file on this machine", "kubectl cdi import https://example.org/disk.img TARGET";
        "upload {files}/raw dv/x --archive {here}" =>
            4: "{files}/raw", "is not a tar archive but a raw disk", "leave out --archive";
        "upload {files}/disk.qcow2 dv/x --archive {here}" =>
            4: "{files}/disk.qcow2", "an image in qcow2 format", "leave out --archive";
        "upload {files}/raw dv/never-was --no-create {proxy} {here}" =>
            7: "dv/never-was", "not found", "check the name";
        "upload {files}/raw pvc/never-was --no-create {proxy} {here}" =>
            7: "pvc/never-was", "not found", "check the name";
        "upload {files}/raw pvc/there {proxy} {here}" =>
            7: "pvc/there", "already exists", "give --no-create";
        "upload {files}/raw dv/x {proxy} --kubeconfig {cluster} --namespace nowhere" =>
            7: "namespace nowhere", "not found", "check --namespace";
        "upload {files}/raw dv/x {here}" =>
            7: "the cluster", "does not publish an external address of its upload proxy", "--uploadproxy-url https://localhost:8443";
        "upload {files}/raw pvc/there --no-create --uploadproxy-url nonsense:// {here}" =>
            2: "\"nonsense://\"", "is not the https URL of an upload proxy", "write https://HOST";
        "upload {files}/raw pvc/there --no-create --uploadproxy-url http://{http} {here}" =>
            2: "\"http://{http}\"", "is not the https URL of an upload proxy", "write https://HOST";
        "upload {files}/raw pvc/closed --no-create {proxy} --timeout 2s {here}" =>
            7: "https://{closedport}", "was not reached for", "can it be reached from here?";
        "upload {files}/raw pvc/untrusted --no-create --uploadproxy-url https://{https} {here}" =>
            7: "https://{https}", "UnknownIssuer", "give --cacert, or --insecure";
        "upload {files}/raw pvc/web --no-create --uploadproxy-url https://{https} --insecure {here}" =>
            7: "https://{https}", "does not have the upload", "Check --uploadproxy-url";
        "upload {files}/raw pvc/plain --no-create --uploadproxy-url https://{http} --timeout 2s {here}" =>
            7: "https://{http}", "was not reached for", "can it be reached from here?";
        "upload {files}/raw pvc/there --no-create {proxy} --cacert {files}/nope {here}" =>
            2: "{files}/nope", "no such file", "check --cacert";
        "upload {files}/raw pvc/there --no-create {proxy} --cacert {files}/raw {here}" =>
            2: "the upload proxy", "no certificate (PEM) found", "check --cacert";
    });
}
