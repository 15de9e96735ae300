//! Subcommands, options and their values.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const USAGE: &[UserMistake] = user_mistakes! {
    "frobnicate" =>
        2: "'frobnicate'", "unrecognized", "subcommand";
    "imprt {files}/raw {target}" =>
        2: "'imprt'", "unrecognized subcommand", "exists: 'import'";
    "import" =>
        2: "required arguments", "not provided", "<SOURCE> <TARGET>";
    "import {files}/raw" =>
        2: "required arguments", "not provided", "<TARGET>";
    "import {files}/raw {target} {target}" =>
        2: "'{target}'", "unexpected", "argument";
    "import --force" =>
        2: "required arguments", "not provided", "<SOURCE> <TARGET>";
    "import --checksum" =>
        2: "'--checksum <ALG:HEX>'", "none was supplied", "a value is required";
    "import --chekcsum md5:12 {files}/raw {target}" =>
        2: "'--chekcsum'", "unexpected argument", "exists: '--checksum'";
    "-v import {files}/raw {target}" =>
        2: "'-v'", "unexpected argument", "options of a subcommand follow its name";
    "-q import {files}/raw {target}" =>
        2: "'-q'", "unexpected argument", "options of a subcommand follow its name";
    "IMPORTER_SOURCE=http -vv import x {target}" =>
        2: "'-v'", "unexpected argument", "options of a subcommand follow its name";
    "unpack --force {files}/files.tar {folder}" =>
        2: "'--force'", "unexpected argument", "similar argument";
    "check --checksum md5:12 {files}/raw" =>
        2: "'--checksum'", "unexpected argument", "similar argument";
    "convert --insecure {files}/raw {target}" =>
        2: "'--insecure'", "unexpected", "argument";
    "convert --user joe {files}/raw {target}" =>
        2: "'--user'", "unexpected", "argument";
    "info --progress json {files}/raw" =>
        2: "'--progress'", "unexpected argument", "similar argument";
    "man import" =>
        2: "'import'", "unexpected", "argument";
    "pack {files}/raw" =>
        2: "required arguments", "not provided", "<TARGET>";
    "pack {files}/raw {target}" =>
        2: "'{target}'", "write oci:{target} for a directory", "oci-archive:{target} for a tar";
    "pack {files}/raw -" =>
        2: "'-'", "invalid value", "write oci:- for a directory";
    "pack {files}/raw oci-archive:-" =>
        2: "standard output", "not written in order", "choose a file";
    "pack {files}/raw docker://{registry}/vm" =>
        2: "docker://{registry}/vm", "pack writes local layouts", "skopeo copy --multi-arch=all";
    "pack --name a/b {files}/raw oci:{target}" =>
        2: "'a/b'", "invalid value", "lower-case letters, digits and hyphens";
    "pack --disk ../x={files}/raw {files}/raw oci:{target}" =>
        2: "'../x={files}/raw'", "invalid value", "lower-case letters, digits and hyphens";
    "pack --disk data {files}/raw oci:{target}" =>
        2: "'data'", "invalid value", "use NAME=SOURCE";
    "pack --name a --disk a={files}/raw {files}/raw oci:{target}" =>
        2: "a: ", "two disks are called", "give each its own name";
    "pack --config {files}/nope {files}/raw oci:{target}" =>
        2: "--config {files}/nope", "cannot use", "no such file";
    "pack --config {files}/vm.ovf {files}/raw oci:{target}" =>
        2: "--config {files}/vm.ovf", "not JSON", "kubectl get vm NAME -o json";
    "pack --config {files}/error.json {files}/raw oci:{target}" =>
        2: "--config {files}/error.json", "its kind is \"\"", "expected VirtualMachine or VirtualMachineTemplate";
    "completions" =>
        2: "required arguments", "not provided", "<SHELL>";
    "completions tcsh" =>
        2: "'tcsh'", "invalid value", "bash, elvish, fish, powershell, zsh";
};

pub(super) const VALUES: &[UserMistake] = user_mistakes! {
    "--memory 1Mi import {files}/raw {target}" =>
        2: "'--memory", "the process itself needs 64Mi", "give at least that";
    "--memory lots import {files}/raw {target}" =>
        2: "'--memory", "not a Kubernetes quantity", "such as 500Mi";
    "import --memory 1Mi {files}/raw {target}" =>
        2: "'--memory", "the process itself needs 64Mi", "give at least that";
    "import --memory 63Mi {files}/raw {target}" =>
        2: "'63Mi'", "the process itself needs 64Mi", "give at least that";
    "import --size 4GiB {files}/raw {target}" =>
        2: "'--size", "\"4GiB\" is not a Kubernetes quantity", "write 4Gi";
    "import --size 4GB {files}/raw {target}" =>
        2: "'--size", "\"4GB\" is not a Kubernetes quantity", "write 4G";
    "import --size 4g {files}/raw {target}" =>
        2: "'--size", "\"4g\" is not a Kubernetes quantity", "write 4G";
    "import --size 1Zi {files}/raw {target}" =>
        2: "'--size", "\"1Zi\" is not a Kubernetes quantity", "such as 500Mi";
    "import --size 9Ei {files}/raw {target}" =>
        2: "'--size", "is too large", "the limit is";
    "import --size 0 {files}/raw {target}" =>
        5: "the target", "room for 0", "a larger --size";
    "import --size 1Mi {files}/raw {target}" =>
        5: "the target", "3145728 bytes, and the target has room for 1048576", "a larger --size";
    "import --size 1Mi {files}/raw {device}" =>
        2: "--size", "is for files", "a block device has its own size";
    "import --threads 0 {files}/raw {target}" =>
        2: "'--threads <N>'", "invalid value '0'", "at least 1";
    "import --threads many {files}/raw {target}" =>
        2: "'--threads <N>'", "invalid value 'many'", "use a whole number";
    "import --connections 0 http://{http} {target}" =>
        2: "'--connections <N>'", "'0'", "use auto, or 1 to 16";
    "import --connections 17 http://{http} {target}" =>
        2: "'--connections <N>'", "'17'", "use auto, or 1 to 16";
    "import --retries x http://{http} {target}" =>
        2: "'--retries <N>'", "invalid value 'x'", "use a whole number";
    "import --no-progress-timeout 0 http://{http} {target}" =>
        2: "'--no-progress-timeout <TIME>'", "invalid value '0'", "at least one second";
    "import --no-progress-timeout 5d http://{http} {target}" =>
        2: "'--no-progress-timeout <TIME>'", "invalid value '5d'", "with s, m or h";
    "import --no-progress-timeout soon http://{http} {target}" =>
        2: "'--no-progress-timeout <TIME>'", "invalid value 'soon'", "with s, m or h";
    "import --limit-rate fast {files}/raw {target}" =>
        2: "'--limit-rate <BYTES>'", "invalid value 'fast'", "use a whole number with an optional K, M or G";
    "import --limit-rate 10MB {files}/raw {target}" =>
        2: "'--limit-rate <BYTES>'", "invalid value '10MB'", "with an optional K, M or G";
    "import --limit-rate 0 {files}/raw {target}" =>
        2: "'--limit-rate <BYTES>'", "must not be zero", "leave the option out";
    "import --speed-limit 0 http://{http} {target}" =>
        2: "'--speed-limit <BYTES>'", "must not be zero", "leave the option out";
    "import --speed-time 0 http://{http} {target}" =>
        2: "'--speed-time <TIME>'", "invalid value '0'", "at least one second";
    "import --format iso {files}/raw {target}" =>
        2: "'--format <FORMAT>'", "invalid value 'iso'", "raw, qcow2, vmdk, vdi, vhd, vhdx";
    "import --format QCOW2 {files}/raw {target}" =>
        2: "'--format <FORMAT>'", "invalid value 'QCOW2'", "qcow2";
    "import --route fast {files}/raw {target}" =>
        2: "'--route <ROUTE>'", "invalid value 'fast'", "auto, one-pass";
    "import --progress fancy {files}/raw {target}" =>
        2: "'--progress <PROGRESS>'", "invalid value 'fancy'", "auto, bar, plain, json, none";
    "import --scratch {files}/nope {files}/raw {target}" =>
        2: "'--scratch <DIR>'", "does not exist", "create it first";
    "import --scratch {files}/raw {files}/raw {target}" =>
        2: "'{files}/raw' for '--scratch <DIR>'", "not a directory", "choose one";
    "info --overhead 2 {files}/raw" =>
        2: "'--overhead <FRACTION>'", "invalid value '2'", "from 0 to below 1, such as 0.055";
    "info --overhead 6% {files}/raw" =>
        2: "'--overhead <FRACTION>'", "invalid value '6%'", "such as 0.055";
    "import --checksum 1234 {files}/raw {target}" =>
        2: "'--checksum", "invalid checksum format", "expected 'algorithm:hash'";
    "import --checksum sha3:12 {files}/raw {target}" =>
        2: "'--checksum", "unsupported hash algorithm 'sha3'", "md5, sha1, sha256, sha512";
    "import --checksum md5:12 {files}/raw {target}" =>
        2: "'--checksum", "invalid md5 hash length", "expected 32 hex characters";
    "import --checksum md5:zz345678901234567890123456789012 {files}/raw {target}" =>
        2: "'--checksum", "invalid byte 'z'", "hexadecimal";
    "import --checksum md5:00000000000000000000000000000000 {files}/raw {target}" =>
        6: "{files}/raw", "checksum mismatch: expected md5:000", "check the expected checksum";
};

pub(super) const SECRETS: &[UserMistake] = user_mistakes! {
    "import --header no-colon http://{closed}/ {target}" =>
        2: "--header", "it has no colon", "'Name: value'";
    "import --secret-header-file {files}/nope https://{closed}/ {target}" =>
        2: "{files}/nope", "no such file", "check --secret-header-file";
    "import --secret-header-file {files}/not-a-header https://{closed}/ {target}" =>
        2: "{files}/not-a-header", "it has no colon", "'Name: value'";
    "import --user joe http://{http}/raw {target}" =>
        2: "required arguments", "not provided", "--password-file";
    "import --password-file {files}/password http://{http}/raw {target}" =>
        2: "required arguments", "not provided", "--user";
    "info --user joe --json http://{closed}/" =>
        2: "required arguments", "not provided", "--password-file";
    "import --user joe --password-file {files}/nope https://{closed}/ {target}" =>
        2: "{files}/nope", "no such file", "check --password-file";
    "import --user joe --password-file {files}/directory https://{closed}/ {target}" =>
        2: "{files}/directory", "is a directory", "check --password-file";
    "import --user joe --password-file {files}/empty https://{closed}/ {target}" =>
        2: "the password", "may be empty", "check --user and --password-file";
    "import --ca-dir {files}/nope https://{closed}/ {target}" =>
        2: "{files}/nope", "no such file", "--ca-dir is a directory";
    "import --ca-dir {files}/raw https://{closed}/ {target}" =>
        2: "{files}/raw", "not a directory", "--ca-dir is a directory";
};

pub(super) const EXCLUSIVE_OPTIONS: &[UserMistake] = user_mistakes! {
    "import --sparse --preallocate {files}/raw {target}" =>
        2: "'--sparse'", "cannot be used with", "'--preallocate'";
    "import --direct --cached {files}/raw {target}" =>
        2: "'--direct'", "cannot be used with", "'--cached'";
    "import -q -v {files}/raw {target}" =>
        2: "'--quiet'", "cannot be used with", "'--verbose";
    "import --ca-dir {files}/trusted --insecure https://{closed}/ {target}" =>
        2: "'--ca-dir <DIR>'", "cannot be used with", "'--insecure'";
    "import --anonymous --user joe --password-file {files}/password s3://b/k {target}" =>
        2: "'--anonymous'", "cannot be used with", "'--user <NAME>'";
    "import --anonymous --ambient-identity s3://b/k {target}" =>
        2: "'--anonymous'", "cannot be used with", "'--ambient-identity'";
    "import --previous-checkpoint c1 http://{http}/raw {target}" =>
        2: "required arguments", "not provided", "--checkpoint <ID>";
};

pub(super) const STRAY_OPTIONS: &[UserMistake] = user_mistakes! {
    "import --checkpoint c1 http://{http}/raw {target}" =>
        2: "--checkpoint", "not for http and https", "for ovirt and vddk sources";
    "import --checkpoint c1 --previous-checkpoint c0 {files}/raw {target}" =>
        2: "--checkpoint", "not for files", "for ovirt and vddk sources";
    "import --thumbprint AA http://{http}/raw {target}" =>
        2: "--thumbprint", "not for http and https", "for vddk sources";
    "import --thumbprint AA ovirt+https://engine/ovirt-engine/api/disks/1 {target}" =>
        2: "--thumbprint", "not for ovirt", "for vddk sources";
    "info --vddk-library /l http://{http}/raw" =>
        2: "--vddk-library", "not for http and https", "for vddk sources";
    "info --region r gs://b/k" =>
        2: "--region", "not for gs", "for s3 sources";
    "info --anonymous {files}/raw" =>
        2: "--anonymous", "not for files", "for s3 and gs sources";
    "check --key-file /k http://{http}/raw" =>
        2: "--key-file", "not for http and https", "for gs sources";
    "import --ambient-identity http://{http}/raw {target}" =>
        2: "--ambient-identity", "not for http and https", "for s3, gs and glance sources";
    "info --architecture arm64 http://{http}/raw" =>
        2: "--architecture", "not for http and https", "for docker, oci and oci-archive sources";
    "info --architecture arm64 {files}/raw" =>
        2: "--architecture", "not for files", "for docker, oci and oci-archive sources";
    "info --token-service h http://{http}/raw" =>
        2: "--token-service", "not for http and https", "for docker";
    "import --header A:{space}b s3://b/k {target}" =>
        2: "--header", "not for s3", "for http and https sources";
    "import --secret-header-file {files}/header docker://h/x {target}" =>
        2: "--secret-header-file", "not for docker", "for http and https sources";
    "import --user joe --password-file {files}/password {files}/raw {target}" =>
        2: "--user", "not for files", "for sources on a server";
    "import --ca-dir {files}/trusted {files}/raw {target}" =>
        2: "--ca-dir", "not for files", "for sources on a server";
    "import --insecure {files}/raw {target}" =>
        2: "--insecure", "not for files", "for sources on a server";
    "import --insecure oci:{files}/layout:test {target}" =>
        2: "--insecure", "not for files", "for sources on a server";
    "import --connections 4 {files}/raw {target}" =>
        2: "--connections", "not for files", "for sources on a server";
    "import --retries 3 {files}/raw {target}" =>
        2: "--retries", "not for files", "for sources on a server";
    "import --no-progress-timeout 1m {files}/raw {target}" =>
        2: "--no-progress-timeout", "not for files", "for sources on a server";
    "import --cleartext-secrets {files}/raw {target}" =>
        2: "--cleartext-secrets", "not for files", "for sources on a server";
    "import --cleartext-secrets oci-archive:{files}/raw {target}" =>
        2: "--cleartext-secrets", "not for files", "for sources on a server";
    "unpack --checkpoint c1 http://{http}/raw {folder}" =>
        2: "--checkpoint", "not for http and https", "for ovirt and vddk sources";
    "unpack --ova {files}/disk.ova {folder}" =>
        2: "--ova", "an archive is a tar", "for images";
    "unpack --format raw {files}/files.tar {folder}" =>
        2: "--format", "an archive is a tar", "for images";
    "apply --ova {files}/disk.ova {target}" =>
        2: "--ova", "a delta is qcow2", "for images";
    "apply --format qcow2 {files}/disk.qcow2 {target}" =>
        2: "--format", "a delta is qcow2", "for images";
    "check --ova {files}/disk.ova" =>
        2: "--ova", "reads an image in place", "extract it with tar first";
    "convert https://{http}/raw {target}" =>
        2: "https://{http}/raw", "convert is for images on this machine", "use cdi-importer import https://{http}/raw {target}";
    "convert docker://quay.io/x/y {target}" =>
        2: "docker://quay.io/x/y", "convert is for images on this machine", "use cdi-importer import";
};
