//! Third-party object stores on loopback.

mod programs;

use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::certs::{Authority, KeyKind};
use crate::fail::OrFail;
use crate::process::Running;
use crate::tools;

/// The bucket that exists in every store.
pub const BUCKET: &str = "images";

/// The access key of [`Kind::S3s`].
pub const ACCESS_KEY: &str = "AKIAEXAMPLEOFATEST";

/// The secret key of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "secret/of+a/test";

/// The program that implements a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// moto: S3 with versions, checksums and STS. It accepts any signature, and requires none for
    /// public objects.
    Moto,
    /// s3s-fs: S3 that verifies signatures.
    S3s,
    /// gcp-storage-emulator: Google Cloud Storage. Objects in the bucket `private` need
    /// authentication.
    Gcs,
}

/// The header that makes an object of [`Kind::Moto`] readable without a signature.
pub const PUBLIC: &str = "x-amz-acl: public-read";

/// A syntactically valid signature. [`Kind::Moto`] does not verify it.
const ANY_SIGNATURE: &str = "authorization: AWS4-HMAC-SHA256 Credential=any/20250101/us-east-1/s3/aws4_request, Signature=0";

/// A running store. It ends with this process.
pub struct Store {
    kind: Kind,
    address: SocketAddr,
    folder: TempDir,
    _running: Running,
}

impl Store {
    /// Starts a store and waits until it listens. This takes a second, or two minutes if it must
    /// be installed first.
    pub fn start(kind: Kind) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).or_fail(BUCKET);
        let (address, running) = programs::start(kind, folder.path());
        let store = Self { kind, address, folder, _running: running };
        match kind {
            Kind::Moto => store.create_bucket(BUCKET),
            Kind::Gcs => store.create_bucket("private"),
            Kind::S3s => {}
        }
        store
    }

    /// The program that implements the store.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a bucket.
    pub fn create_bucket(&self, name: &str) {
        match self.kind {
            Kind::Moto => self.send("PUT", name, &[], b""),
            Kind::Gcs => {
                let request = format!("{{\"name\": \"{name}\"}}");
                self.send(
                    "POST",
                    "storage/v1/b",
                    &["content-type: application/json"],
                    request.as_bytes(),
                )
            }
            Kind::S3s => {
                std::fs::create_dir(self.folder.path().join(name)).or_fail(name);
                String::new()
            }
        };
    }

    /// Stores an object under `key` in [`BUCKET`], replacing an existing one.
    pub fn put(&self, key: &str, content: &[u8]) {
        self.put_with(BUCKET, key, &[], content);
    }

    /// Stores an object in `bucket` with these headers (`name: value`).
    pub fn put_with(&self, bucket: &str, key: &str, headers: &[&str], content: &[u8]) {
        if self.kind == Kind::S3s {
            let path = self.folder.path().join(bucket).join(key);
            let parent = path.parent().map(PathBuf::from).or_fail("a folder of the object");
            std::fs::create_dir_all(&parent).or_fail(parent.display());
            std::fs::write(&path, content).or_fail(path.display());
        } else {
            self.send("PUT", &format!("{bucket}/{}", encoded(key)), headers, content);
        }
    }

    /// Sends a request that must succeed, and returns the response with its head.
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> String {
        let url = format!("http://{}/{path}", self.address);
        let mut all = Vec::new();
        if self.kind == Kind::Moto {
            all.push(ANY_SIGNATURE);
        }
        if !headers.iter().any(|header| header.starts_with("content-type")) {
            all.push("content-type: application/octet-stream");
        }
        all.extend(headers);
        tools::send(method, &url, &all, body)
    }
}

/// The key file of a Google service account, which signs its own tokens.
pub fn service_account() -> String {
    let key = Authority::new().and_then(|authority| authority.server(KeyKind::Rsa));
    serde_json::json!({
        "type": "service_account",
        "client_email": "importer@project.iam.gserviceaccount.com",
        "private_key": key.or_fail("a key").key_pem(),
        "private_key_id": "1",
    })
    .to_string()
}

/// Percent-encodes a key for a path (RFC 3986 §2.3).
fn encoded(key: &str) -> String {
    key.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
