//! Third-party tus clients (`crates/testkit/tus`): tus-js-client and tuspy upload, are
//! interrupted, and resume.

use std::fmt;
use std::path::Path;

use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::relay::Relay;
use testkit::upload_proxy::PVC;
use testkit::{tools, wait};

use super::{Pair, UPLOADED};

const MIB: u64 = 1 << 20;

/// Length of the upload, and the rate limit of the proxy in bytes per second.
const LENGTH: u64 = 32 * MIB;
const RATE: u64 = 8 * MIB;

#[derive(Clone, Copy)]
enum Client {
    JavaScript { is_deferred: bool },
    Python,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JavaScript { is_deferred: false } => "tus-js-client",
            Self::JavaScript { is_deferred: true } => {
                "tus-js-client, which says the length at the end"
            }
            Self::Python => "tuspy",
        })
    }
}

impl Client {
    /// Returns the client that uploads `file` to `url`.
    fn program(self, pair: &Pair, url: &str, file: &Path) -> Program {
        let installed = tools::built("tus");
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/testkit/tus");
        let program = match self {
            Self::JavaScript { .. } => {
                Program::new(tools::find("node")).arg(scripts.join("upload.cjs")).arg(&installed)
            }
            Self::Python => {
                Program::new(installed.join("python/bin/python3")).arg(scripts.join("upload.py"))
            }
        };
        let program = program.arg(url).arg(pair.proxy.bearer(PVC)).arg(file);
        let program = match self {
            Self::JavaScript { is_deferred: true } => program.arg("deferred"),
            Self::JavaScript { is_deferred: false } | Self::Python => program,
        };
        let authority = pair.proxy.path("front-ca.crt");
        program.env("NODE_EXTRA_CA_CERTS", &authority).env("REQUESTS_CA_BUNDLE", &authority)
    }
}

#[test]
#[ignore = "server: tus clients"]
fn third_party_tus_clients_resume_after_a_cut() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk.raw");
    let content = disk::content(3, LENGTH);
    std::fs::write(&file, &content).unwrap();
    let clients = [
        Client::JavaScript { is_deferred: false },
        Client::JavaScript { is_deferred: true },
        Client::Python,
    ];
    check_all(clients, |client| {
        let pair = Pair::throttled(RATE);
        let relay = Relay::start(pair.front.address());
        let url = format!("{}v1beta1/upload-resumable", relay.url());
        let running = client.program(&pair, &url, &file).start();
        wait::until(
            || format!("half of it is sent\n{}\n{}", running.stderr_so_far(), pair.logs()),
            || relay.sent() > LENGTH / 2,
        );
        relay.cut();
        let finished = running.wait();
        finished.assert_success(&client.to_string());
        let offsets = finished.stdout.lines().filter_map(|line| line.strip_prefix("goes on at "));
        let offsets: Vec<u64> = offsets.map(|offset| offset.parse().or_fail(offset)).collect();
        assert!(offsets.first().is_some_and(|first| *first > 0), "{}", finished.stdout);
        assert!(finished.stdout.ends_with("done\n"), "{}", finished.stdout);
        // Only bytes in flight at the cut may be sent twice, not those that the server has.
        let again = relay.sent().saturating_sub(LENGTH);
        assert!(again < LENGTH / 4, "{again} bytes were sent again");
        pair.upload_server.wait().assert_success("resume");
        assert!(std::fs::read(pair.pod.disk()).or_fail("the disk") == content);
        assert_eq!(pair.pod.message().as_deref(), Some(UPLOADED));
    });
}
