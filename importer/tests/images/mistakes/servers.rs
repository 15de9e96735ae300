//! Web servers, proxies and NBD servers.

pub(super) const WEB_SERVERS: &[&str] = &[
    "import http://{http}/gone {target}",
    "import http://{http}/forbidden {target}",
    "import http://{http}/bad {target}",
    "import http://{http}/tea {target}",
    "import --retries 0 http://{http}/busy {target}",
    "import http://{http}/locked {target}",
    "import --user joe --password-file {files}/password http://{http}/locked {target}",
    "import http://joe:hunter2@{http}/locked {target}",
    "import http://{http}/loop {target}",
    "import http://{http}/moved {target}",
    "import http://{http}/ftp {target}",
    "import http://{http}/page {target}",
    "import http://{http}/json {target}",
    "import http://{http}/empty {target}",
    "import http://{http}/half.gz {target}",
    "import http://{http}/damaged.gz {target}",
    "import --checksum md5:00000000000000000000000000000000 http://{http}/raw {target}",
    "import http://host:port/x {target}",
    "import htp://{http}/raw {target}",
    "import ftp://host/disk {target}",
    "import HTTP://{http}/gone {target}",
    "import --retries 0 http://{closed}/x {target}",
    "import --retries 0 http://no-such-host.invalid/x {target}",
    "info http://no-such-host.invalid/x",
    "info http://{http}/gone",
    "info --json http://{http}/gone",
    "info http://{http}/page",
    "check http://{http}/gone",
    "unpack http://{http}/gone {folder}",
    "unpack http://{http}/raw {folder}",
    "apply --base base.img http://{http}/gone {files}/raw",
];

pub(super) const TLS: &[&str] = &[
    "import https://{http}/raw {target}",
    "import http://{https}/raw {target}",
    "import https://{https}/raw {target}",
    "import https://{expired}/raw {target}",
    "import --cacert {files}/trusted https://{expired}/raw {target}",
    "import --cacert {files}/trusted https://{misnamed}/raw {target}",
    "import --cacert {files}/trusted https://{https}/gone {target}",
    "info https://{https}/raw",
];

pub(super) const PROXIES: &[&str] = &[
    "http_proxy=http://{proxy407} import http://origin.invalid/x {target}",
    "http_proxy=http://{proxy403} import http://origin.invalid/x {target}",
    "http_proxy=http://{proxy502} import --retries 0 http://origin.invalid/x {target}",
    "https_proxy=http://{proxy403} import https://origin.invalid/x {target}",
    "https_proxy=http://{proxy502} import https://origin.invalid/x {target}",
    "http_proxy=http://{closed} import --retries 0 http://origin.invalid/x {target}",
    "http_proxy=nonsense:// import http://origin.invalid/x {target}",
    "http_proxy=socks4://{closed} import http://origin.invalid/x {target}",
];

pub(super) const NBD_SERVERS: &[&str] = &[
    "import --retries 0 nbd://{closed}/ {target}",
    "import nbd://{http}/ {target}",
    "import nbd://{silent}/ {target}",
    "import {nbd} {target}",
    "import --retries 0 nbd+unix:///?socket={files}/nope {target}",
    "import nbd+unix:/// {target}",
    "import nbd://host:port/ {target}",
];
