//! nbdkit and qemu-nbd: the object is the content of an export.

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::gateway::Fault;
use testkit::nbd::NbdServer;
use testkit::nbd_proxy::NbdProxy;

use super::Server;

/// A server with one file, behind a relay.
pub(crate) struct Nbd {
    relay: NbdProxy,
    _server: NbdServer,
    _folder: TempDir,
}

impl Server for Nbd {
    const NAME: &'static str = "nbd";
    const STATES_RAW: bool = true;
    const UNIT_BYTES: u64 = 4 * (2 << 20);

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for a server");
        let file = folder.path().join("object");
        std::fs::write(&file, object).or_fail("the object");
        // qemu-nbd pads an object to whole sectors, which a compressed one does not survive.
        // nbdkit 1.32 crashes when the connection of a client is cut.
        let server = if faults.is_empty() {
            NbdServer::nbdkit(["file".into(), file.into_os_string()])
        } else {
            NbdServer::qemu(["--format=raw".into(), file.into_os_string()])
        };
        let cut = |fault| match fault {
            Fault::None => u64::MAX,
            Fault::Cut(bytes) => bytes,
            other => unreachable!("{other:?} is for gateways"),
        };
        let cuts = faults.into_iter().map(cut).collect();
        Self {
            relay: NbdProxy::start(&server.socket(), cuts).or_fail("a relay"),
            _server: server,
            _folder: folder,
        }
    }

    fn source(&self) -> Vec<String> {
        vec![self.relay.uri("")]
    }

    fn sent_bytes(&self) -> u64 {
        self.relay.bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let source = ["--retries", "0", "nbd+unix:///?socket=/nowhere/at/all"];
        (source.map(str::to_owned).to_vec(), "no such file or directory")
    }
}
