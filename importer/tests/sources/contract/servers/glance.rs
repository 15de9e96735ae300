//! A scripted OpenStack cloud: the object is the data of its image.

use testkit::gateway::Fault;
use testkit::openstack::script::{Cloud, PASSWORD, Script, USER};

use super::Server;
use crate::place::Place;

/// A cloud with one image.
pub(crate) struct Glance(Cloud);

impl Server for Glance {
    const NAME: &'static str = "glance";
    const CORRUPTION: Option<&'static str> = Some("the source announced sha512:");

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self(Cloud::start(Script { faults, ..Script::new(object.to_vec()) }))
    }

    fn source(&self) -> Vec<String> {
        vec![self.0.source()]
    }

    fn options(&self, place: &Place) -> Vec<String> {
        place.as_user(USER, PASSWORD).into()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        [("OS_PROJECT_NAME", "disks"), ("OS_DEFAULT_DOMAIN", "default")]
            .map(|(name, value)| (name, value.to_owned()))
            .into()
    }

    fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        (
            vec![self.0.source_of("no-such-image")],
            "OpenStack image no-such-image: the image service 127.0.0.1 has no such image",
        )
    }

    fn start_guarded(object: &[u8]) -> Self {
        Self::start(object, Vec::new())
    }

    fn lock_out(&self) -> (&'static str, &'static str) {
        self.0.lock_out();
        let text = "the identity service 127.0.0.1 refuses the user name or password: 401 Unauthorized: The request you have made";
        (PASSWORD, text)
    }
}
