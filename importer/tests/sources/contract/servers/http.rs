//! nginx: the object is a file.

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::nginx;

use super::Server;
use crate::place::Place;

const USER: &str = "alice";
const PASSWORD: &str = "correct horse";

/// nginx with one file, behind a gateway.
pub(crate) struct Nginx {
    gateway: Gateway,
    _nginx: nginx::Nginx,
    folder: TempDir,
    is_guarded: bool,
}

impl Nginx {
    fn serve(object: &[u8], faults: Vec<Fault>, is_guarded: bool) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for nginx");
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).or_fail(name)
        };
        write("object", object);
        write("passwords", format!("{USER}:{{PLAIN}}{PASSWORD}\n").as_bytes());
        let guard =
            if is_guarded { "auth_basic closed; auth_basic_user_file passwords;" } else { "" };
        let nginx = nginx::Nginx::start(folder.path(), false, &format!("root .; {guard}"));
        Self {
            gateway: Gateway::start(nginx.address(), Plan::of(faults)).or_fail("a gateway"),
            folder,
            _nginx: nginx,
            is_guarded,
        }
    }
}

impl Server for Nginx {
    const NAME: &'static str = "http";

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self::serve(object, faults, false)
    }

    fn source(&self) -> Vec<String> {
        vec![self.gateway.url("/object")]
    }

    fn options(&self, place: &Place) -> Vec<String> {
        if self.is_guarded { place.as_user(USER, PASSWORD).into() } else { Vec::new() }
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let text = "does not exist (404): is the address right?";
        (vec![self.gateway.url("/nothing")], text)
    }

    fn start_guarded(object: &[u8]) -> Self {
        Self::serve(object, Vec::new(), true)
    }

    fn lock_out(&self) -> (&'static str, &'static str) {
        let file = self.folder.path().join("passwords");
        std::fs::write(file, format!("{USER}:{{PLAIN}}another\n")).or_fail("another password");
        (PASSWORD, "does not accept the user name and the password (401)")
    }
}
