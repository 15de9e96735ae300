//! s3s-fs, which believes only in signatures that are right.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, SECRET_KEY, Store};

use super::{Server, password_options};

static STORE: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::S3s));

/// One object of a bucket that all tests share, behind a gateway.
pub(crate) struct S3 {
    gateway: Gateway,
    key: String,
    is_locked_out: AtomicBool,
}

impl Server for S3 {
    const NAME: &'static str = "s3";

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        static STORED: AtomicUsize = AtomicUsize::new(0);
        let key = format!("disks/{} of them", STORED.fetch_add(1, Ordering::Relaxed));
        STORE.put(&key, object);
        Self {
            gateway: Gateway::start(STORE.address(), Plan::of(faults)).or_fail("a gateway"),
            key,
            is_locked_out: AtomicBool::new(false),
        }
    }

    fn source(&self) -> Vec<String> {
        vec![format!("s3://{BUCKET}/{}", self.key)]
    }

    fn options(&self, folder: &Path) -> Vec<String> {
        let secret = match self.is_locked_out.load(Ordering::Relaxed) {
            true => "another",
            false => SECRET_KEY,
        };
        password_options(folder, ACCESS_KEY, secret)
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("AWS_ENDPOINT_URL", self.gateway.url(""))]
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let text = "could not get s3 object: \"images/nothing\": NoSuchKey";
        (vec![format!("s3://{BUCKET}/nothing")], text)
    }

    fn start_guarded(object: &[u8]) -> Self {
        Self::start(object, Vec::new())
    }

    fn lock_out(&self) -> &'static str {
        self.is_locked_out.store(true, Ordering::Relaxed);
        ": SignatureDoesNotMatch"
    }
}
