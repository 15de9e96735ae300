//! Servers of the testkit, for tests that need no other program.

use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::layout_registry::LayoutRegistry;
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};

use super::Server;
use super::registry::of_blobs;
use crate::place::Place;

/// An origin that serves the object at every path, behind a gateway.
struct Web {
    gateway: Gateway,
    _origin: Origin,
}

/// Defines a server that is an origin, with its source, options and environment.
macro_rules! web {
    ($name:ident, $text:literal, $source:expr, $options:expr, $environment:expr) => {
        #[doc = $text]
        pub(crate) struct $name(Web);

        impl Server for $name {
            const NAME: &'static str = $text;

            fn start(object: &[u8], faults: Vec<Fault>) -> Self {
                let origin = Origin::start(Script::new(object.to_vec())).or_fail("an origin");
                let gateway = Gateway::start(origin.address(), Plan::of(faults));
                Self(Web { gateway: gateway.or_fail("a gateway"), _origin: origin })
            }

            fn source(&self) -> Vec<String> {
                let source: fn(&Gateway) -> String = $source;
                vec![source(&self.0.gateway)]
            }

            fn options(&self, place: &Place) -> Vec<String> {
                let options: fn(&Place) -> Vec<String> = $options;
                options(place)
            }

            fn environment(&self) -> Vec<(&'static str, String)> {
                let environment: fn(&Gateway) -> Vec<(&'static str, String)> = $environment;
                environment(&self.0.gateway)
            }

            fn sent_bytes(&self) -> u64 {
                self.0.gateway.body_bytes()
            }
        }
    };
}

web!(Http, "a web server", |gateway| gateway.url("/disk"), |_| Vec::new(), |_| Vec::new());
web!(
    S3,
    "S3",
    |_| "s3://bucket/disk".to_owned(),
    |place| place.as_user("key", "secret").into(),
    |gateway| vec![("AWS_ENDPOINT_URL", gateway.url(""))]
);
web!(
    Gcs,
    "Google Cloud Storage",
    |_| "gs://bucket/disk".to_owned(),
    |_| vec!["--anonymous".to_owned()],
    |gateway| vec![("STORAGE_EMULATOR_HOST", gateway.url(""))]
);

/// A registry with one container disk, behind a gateway.
pub(crate) struct Registry {
    gateway: Gateway,
    _registry: LayoutRegistry,
}

impl Server for Registry {
    const NAME: &'static str = "a registry";

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        let registry = LayoutRegistry::of_images(&[Image::of_disk(object, Compression::None)]);
        let gateway = Gateway::start(registry.address(), of_blobs(faults)).or_fail("a gateway");
        Self { gateway, _registry: registry }
    }

    fn source(&self) -> Vec<String> {
        vec![format!("docker://{}/disks/vm:1", self.gateway.address())]
    }

    fn options(&self, _place: &Place) -> Vec<String> {
        ["--insecure", "--architecture", "amd64"].map(str::to_owned).into()
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }
}
