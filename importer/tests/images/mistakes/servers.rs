//! Web servers, proxies and NBD servers.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const WEB_SERVERS: &[UserMistake] = user_mistakes! {
    "import http://{http}/gone {target}" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "import http://{http}/forbidden {target}" =>
        3: "http://{http}/forbidden", "denies access (403)", "does it need a login";
    "import http://{http}/bad {target}" =>
        3: "http://{http}/bad", "answers 400 Bad Request", "is it https://?";
    "import http://{http}/tea {target}" =>
        3: "http://{http}/tea", "answers 418 I'm a teapot", "check the address";
    "import --retries 0 http://{http}/busy {target}" =>
        3: "http://{http}/busy", "answers 503 Service Unavailable", "try again later";
    "import http://{http}/locked {target}" =>
        3: "http://{http}/locked", "requires a user name and a password (401)", "give --user and --password-file";
    "import --user joe --password-file {files}/password http://{http}/locked {target}" =>
        3: "http://{http}/locked", "does not accept the user name and the password (401)", "check them";
    "import http://joe:hunter2@{http}/locked {target}" =>
        3: "http://{http}/locked", "does not accept the user name and the password (401)", "check them";
    "import http://{http}/loop {target}" =>
        3: "http://{http}/loop", "stopped after 10 redirects", "check the address";
    "import http://{http}/moved {target}" =>
        3: "http://{http}/gone (reached from http://{http}/moved)", "does not exist (404)", "is the address right?";
    "import http://{http}/ftp {target}" =>
        3: "http://{http}/ftp", "scheme ftp is neither http nor https", "check the address";
    "import http://{http}/page {target}" =>
        4: "http://{http}/page", "this is text, not a disk", "(text/html, 63 bytes): check the address";
    "import http://{http}/json {target}" =>
        4: "http://{http}/json", "this is text, not a disk", "(application/json, 23 bytes): check the address";
    "import http://{http}/empty {target}" =>
        4: "http://{http}/empty", "the source is empty", "check what it should contain";
    "import http://{http}/half.gz {target}" =>
        4: "http://{http}/half.gz", "the gzip stream is truncated", "fetch it again";
    "import http://{http}/damaged.gz {target}" =>
        4: "http://{http}/damaged.gz", "the gzip stream is corrupt", "fetch it again";
    "import --checksum md5:00000000000000000000000000000000 http://{http}/raw {target}" =>
        6: "http://{http}/raw", "checksum mismatch", "check the expected checksum";
    "import http://host:port/x {target}" =>
        2: "http://host:port/x", "invalid port number", "write https://HOST:PORT/PATH";
    "import htp://{http}/raw {target}" =>
        2: "scheme htp", "are not supported", "use http, https";
    "import ftp://host/disk {target}" =>
        2: "scheme ftp", "are not supported", "use http, https";
    "import HTTP://{http}/gone {target}" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "import --retries 0 http://{closed}/x {target}" =>
        3: "http://{closed}/x", "connection refused", "is its server running?";
    "import --retries 0 http://no-such-host.invalid/x {target}" =>
        3: "http://no-such-host.invalid/x", "cannot find no-such-host.invalid", "is the address right";
    "info http://{http}/gone" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "info --json http://{http}/gone" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "info http://{http}/page" =>
        4: "http://{http}/page", "this is text, not a disk", "check the address";
    "check http://{http}/gone" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "unpack http://{http}/gone {folder}" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
    "unpack http://{http}/raw {folder}" =>
        4: "http://{http}/raw", "does not look like a tar archive", "`cdi-importer import`";
    "apply --base base.img http://{http}/gone {files}/raw" =>
        3: "http://{http}/gone", "does not exist (404)", "is the address right?";
};

pub(super) const TLS: &[UserMistake] = user_mistakes! {
    "import https://{http}/raw {target}" =>
        3: "https://{http}/raw", "it does not speak TLS", "is it http://?";
    "import http://{https}/raw {target}" =>
        3: "http://{https}/raw", "answers 400 Bad Request", "is it https://?";
    "import https://{https}/raw {target}" =>
        3: "https://{https}/raw", "its certificate is not signed by a trusted authority", "--ca-dir DIR";
    "import https://{expired}/raw {target}" =>
        3: "https://{expired}/raw", "its certificate expired on Thu, 31 Dec 2020", "is the clock of this machine right?";
    "import --ca-dir {files}/trusted https://{expired}/raw {target}" =>
        3: "https://{expired}/raw", "its certificate expired on Thu, 31 Dec 2020", "is the clock of this machine right?";
    "import --ca-dir {files}/trusted https://{misnamed}/raw {target}" =>
        3: "https://{misnamed}/raw", "its certificate is for elsewhere.invalid", "is the address right?";
    "import --ca-dir {files}/trusted https://{https}/gone {target}" =>
        3: "https://{https}/gone", "does not exist (404)", "is the address right?";
    "info https://{https}/raw" =>
        3: "https://{https}/raw", "not signed by a trusted authority", "--ca-dir DIR";
};

pub(super) const PROXIES: &[UserMistake] = user_mistakes! {
    "http_proxy=http://{proxy407} import http://origin.invalid/x {target}" =>
        3: "the proxy http://{proxy407}", "requires a user name and a password (407)", "set http_proxy to http://NAME:PASSWORD@HOST:PORT";
    "http_proxy=http://{proxy403} import http://origin.invalid/x {target}" =>
        3: "through the proxy http://{proxy403}", "denies access (403)", "does it need a login";
    "http_proxy=http://{proxy502} import --retries 0 http://origin.invalid/x {target}" =>
        3: "through the proxy http://{proxy502}", "answers 502 Bad Gateway", "try again later";
    "https_proxy=http://{proxy403} import https://origin.invalid/x {target}" =>
        3: "through the proxy http://{proxy403}", "tunnel error", "does it allow connections to origin.invalid port 443";
    "https_proxy=http://{proxy502} import https://origin.invalid/x {target}" =>
        3: "through the proxy http://{proxy502}", "tunnel error", "does it allow connections to origin.invalid port 443";
    "http_proxy=http://{closed} import --retries 0 http://origin.invalid/x {target}" =>
        3: "through the proxy http://{closed}", "connection refused", "is its server running?";
    "http_proxy=nonsense:// import http://origin.invalid/x {target}" =>
        2: "HTTP_PROXY", "scheme nonsense", "not http, https or socks5";
    "http_proxy=socks4://{closed} import http://origin.invalid/x {target}" =>
        2: "HTTP_PROXY", "scheme socks4", "not http, https or socks5";
};

pub(super) const NBD_SERVERS: &[UserMistake] = user_mistakes! {
    "import --retries 0 nbd://{closed}/ {target}" =>
        3: "nbd://{closed}/", "connection refused", "is its server running?";
    "import nbd://{http}/ {target}" =>
        3: "nbd://{http}/", "sent no NBD greeting within 10 s", "check the host and the port";
    "import nbd://{silent}/ {target}" =>
        3: "nbd://{silent}/", "sent no NBD greeting within 10 s", "check the host and the port";
    "import {nbd} {target}" =>
        3: "{nbd}", "has no export \"none\"", "check the name";
    "import --retries 0 nbd+unix:///?socket={files}/nope {target}" =>
        3: "socket={files}/nope", "no such file or directory", "check the path of the socket";
    "import nbd+unix:/// {target}" =>
        2: "the NBD URI", "it lacks the path of the Unix socket", "?socket=PATH";
    "import nbd://host:port/ {target}" =>
        2: "the NBD URI", "invalid port number", "nbd://HOST:PORT/EXPORT";
};
