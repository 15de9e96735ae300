//! Object stores: s3s-fs, which verifies signatures, moto, and an emulator of Google's store.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{GCS, MOTO, S3S};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::objects::{ACCESS_KEY, BUCKET, SECRET_KEY, Store};

use super::Server;
use crate::place::Place;

/// Number of objects so far, which gives each one its own key.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An object in a store, behind a gateway.
struct Object {
    gateway: Gateway,
    key: String,
}

impl Object {
    fn put(store: &Store, object: &[u8], faults: Vec<Fault>) -> Self {
        let key = format!("disks/{}", COUNT.fetch_add(1, Ordering::Relaxed));
        store.put(&key, object);
        Self {
            gateway: Gateway::start(store.address(), Plan::of(faults)).or_fail("a gateway"),
            key,
        }
    }

    fn source(&self, scheme: &str) -> Vec<String> {
        vec![format!("{scheme}://{BUCKET}/{}", self.key)]
    }
}

/// Defines a server that speaks S3.
macro_rules! s3 {
    ($name:ident, $text:literal, $store:ident) => {
        #[doc = $text]
        pub(crate) struct $name(Object);

        impl Server for $name {
            const NAME: &'static str = $text;

            fn start(object: &[u8], faults: Vec<Fault>) -> Self {
                Self(Object::put(&$store, object, faults))
            }

            fn source(&self) -> Vec<String> {
                self.0.source("s3")
            }

            fn options(&self, place: &Place) -> Vec<String> {
                place.as_user(ACCESS_KEY, SECRET_KEY).into()
            }

            fn environment(&self) -> Vec<(&'static str, String)> {
                vec![("AWS_ENDPOINT_URL", self.0.gateway.url(""))]
            }

            fn sent_bytes(&self) -> u64 {
                self.0.gateway.body_bytes()
            }

            fn missing(&self) -> (Vec<String>, &'static str) {
                let text = "could not get s3 object: \"images/nothing\": NoSuchKey";
                (vec![format!("s3://{BUCKET}/nothing")], text)
            }
        }
    };
}

s3!(S3s, "s3s-fs", S3S);
s3!(Moto, "moto", MOTO);

/// Google Cloud Storage.
pub(crate) struct Gcs(Object);

impl Server for Gcs {
    const NAME: &'static str = "gcs";
    const CORRUPTION: Option<&'static str> = Some("the source announced crc32c:");

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self(Object::put(&GCS, object, faults))
    }

    fn source(&self) -> Vec<String> {
        self.0.source("gs")
    }

    fn options(&self, _place: &Place) -> Vec<String> {
        vec!["--anonymous".to_owned()]
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("STORAGE_EMULATOR_HOST", self.0.gateway.url(""))]
    }

    fn sent_bytes(&self) -> u64 {
        self.0.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let text = "could not get gcs object: \"images/nothing\": NoSuchKey";
        (vec![format!("gs://{BUCKET}/nothing")], text)
    }
}
