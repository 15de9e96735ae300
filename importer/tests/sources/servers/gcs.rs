//! gcp-storage-emulator; private objects are for those who send a token.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use testkit::certs::{Authority, KeyKind};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::objects::{BUCKET, Kind, Store};

use super::Server;

static STORE: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::Gcs));

/// One object of a bucket that all tests share, behind a gateway.
pub(crate) struct Gcs {
    gateway: Gateway,
    bucket: &'static str,
    object: String,
    sends_token: AtomicBool,
}

impl Gcs {
    fn serve(bucket: &'static str, content: &[u8], faults: Vec<Fault>) -> Self {
        static STORED: AtomicUsize = AtomicUsize::new(0);
        let object = format!("disks/{} of them", STORED.fetch_add(1, Ordering::Relaxed));
        STORE.put_with(bucket, &object, &[], content);
        Self {
            gateway: Gateway::start(STORE.address(), Plan::of(faults)).or_fail("a gateway"),
            bucket,
            object,
            sends_token: AtomicBool::new(bucket != BUCKET),
        }
    }
}

impl Server for Gcs {
    const NAME: &'static str = "gcs";
    const CORRUPTION: Option<&'static str> = Some("the source announced crc32c:");

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self::serve(BUCKET, object, faults)
    }

    fn source(&self) -> Vec<String> {
        vec![format!("gs://{}/{}", self.bucket, self.object)]
    }

    fn options(&self, folder: &Path) -> Vec<String> {
        if !self.sends_token.load(Ordering::Relaxed) {
            return vec!["--anonymous".to_owned()];
        }
        let identity = Authority::new().and_then(|authority| authority.server(KeyKind::Rsa));
        let account = serde_json::json!({
            "type": "service_account",
            "client_email": "importer@project.iam.gserviceaccount.com",
            "private_key": identity.or_fail("a key").key_pem(),
            "private_key_id": "1",
        });
        let file = folder.join("account.json");
        std::fs::write(&file, account.to_string()).or_fail("a key file");
        vec!["--key-file".to_owned(), file.display().to_string()]
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("STORAGE_EMULATOR_HOST", self.gateway.address().to_string())]
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        let text = "could not get gcs object: \"images/nothing\": NoSuchKey";
        (vec![format!("gs://{BUCKET}/nothing")], text)
    }

    fn start_guarded(object: &[u8]) -> Self {
        Self::serve("private", object, Vec::new())
    }

    fn lock_out(&self) -> &'static str {
        self.sends_token.store(false, Ordering::Relaxed);
        ": AuthenticationRequired"
    }
}
