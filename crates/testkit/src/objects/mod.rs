//! Object stores that others wrote, on loopback.

mod programs;

use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::fail::OrFail;
use crate::process::Running;
use crate::tools;

/// The bucket that every store has.
pub const BUCKET: &str = "images";

/// The access key that [`Kind::S3s`] knows.
pub const ACCESS_KEY: &str = "AKIAEXAMPLEOFATEST";

/// The secret key that belongs to it.
pub const SECRET_KEY: &str = "secret/of+a/test";

/// The program that plays a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// moto: S3 with versions, checksums and STS; takes every signature, and none for public objects.
    Moto,
    /// s3s-fs: S3 with signatures that must be right.
    S3s,
    /// gcp-storage-emulator: Google Cloud Storage; private objects are in the bucket `private`.
    Gcs,
}

/// The header that lets all clients read an object of [`Kind::Moto`], which otherwise wants any signature.
pub const PUBLIC: &str = "x-amz-acl: public-read";

/// A signature as [`Kind::Moto`] wants one: it looks at it no further.
const ANY_SIGNATURE: &str =
    "authorization: AWS4-HMAC-SHA256 Credential=any/20250101/us-east-1/s3/aws4_request, Signature=0";

/// A store that runs as long as this process.
pub struct Store {
    kind: Kind,
    address: SocketAddr,
    folder: TempDir,
    _running: Running,
}

impl Store {
    /// Starts a store and waits until it listens: a second, or two minutes if it must be installed first.
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

    /// The program that plays it.
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
                self.send("POST", "storage/v1/b", &["content-type: application/json"], request.as_bytes())
            }
            Kind::S3s => {
                std::fs::create_dir(self.folder.path().join(name)).or_fail(name);
                String::new()
            }
        };
    }

    /// Stores an object under `key` in [`BUCKET`]; what was there is replaced.
    pub fn put(&self, key: &str, content: &[u8]) {
        self.put_with(BUCKET, key, &[], content);
    }

    /// Stores an object in `bucket`, with these headers: `name: value`.
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

    /// A request that must succeed: what is answered, its head included.
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

/// The key in a path (RFC 3986 §2.3).
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
