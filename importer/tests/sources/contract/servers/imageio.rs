//! An oVirt engine: the object is the content of its disk.

use testkit::gateway::Fault;
use testkit::origin;
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};

use super::Server;
use crate::place::Place;

/// An engine with one disk.
pub(crate) struct ImageIo {
    engine: Engine,
}

impl ImageIo {
    fn address(&self, disk: &str) -> Vec<String> {
        vec![format!("ovirt+{}/disks/{disk}", self.engine.api_url())]
    }
}

impl Server for ImageIo {
    const NAME: &'static str = "imageio";
    const STATES_RAW: bool = true;

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        let contents = Contents { raw: object.to_vec().into(), ..Contents::default() };
        let fault = |fault| match fault {
            Fault::None => origin::Fault::None,
            Fault::Cut(bytes) => origin::Fault::CutAt(bytes),
            other => unreachable!("{other:?} is for gateways"),
        };
        Self {
            engine: Engine::start(Script {
                faults: faults.into_iter().map(fault).collect(),
                ..Script::new(contents)
            }),
        }
    }

    fn source(&self) -> Vec<String> {
        self.address(DISK_ID)
    }

    fn options(&self, place: &Place) -> Vec<String> {
        place.as_user(USER, PASSWORD).into()
    }

    fn sent_bytes(&self) -> u64 {
        self.engine.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        (self.address("no-such-disk"), "the engine has no disk no-such-disk: ")
    }
}
