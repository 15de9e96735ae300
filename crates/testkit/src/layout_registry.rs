//! A registry that serves one image layout. [`docker_registry`](crate::docker_registry) is a real
//! one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::adversary::{Adversary, Reply};
use crate::fail::OrFail;
use crate::oci::{Image, write_layout};
use crate::wire::Request;

/// A running registry. It stops when dropped.
pub struct LayoutRegistry {
    server: Adversary,
    digest: String,
}

/// The top manifest or index, and all blobs by digest.
struct Content {
    top: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
}

impl LayoutRegistry {
    /// Serves an image, or an index of several.
    pub fn of_images(images: &[Image]) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        write_layout(folder.path(), images);
        Self::start(folder.path())
    }

    /// Serves the layout in `folder`: its only image or index, or the list of its artifacts.
    pub fn start(folder: &Path) -> Self {
        Self::spawn(folder, |answer| Adversary::start(answer))
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]).
    pub fn start_tls(folder: &Path, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::spawn(folder, |answer| Adversary::start_tls(answer, tls))
    }

    fn spawn(
        folder: &Path,
        start: impl FnOnce(Box<dyn Fn(&Request, &str) -> Reply + Send + Sync>) -> Adversary,
    ) -> Self {
        let read = |path: &str| std::fs::read(folder.join(path)).or_fail(path);
        let blobs = std::fs::read_dir(folder.join("blobs/sha256")).or_fail("blobs");
        let blobs = blobs.map(|blob| blob.or_fail("a blob").file_name().into_string());
        let blobs = blobs.map(|hex| hex.ok().or_fail("a digest"));
        let blobs: HashMap<String, Vec<u8>> = blobs
            .map(|hex| (format!("sha256:{hex}"), read(&format!("blobs/sha256/{hex}"))))
            .collect();
        let index = read("index.json");
        let listed: Value = serde_json::from_slice(&index).or_fail("an index");
        let listed = listed["manifests"].as_array().or_fail("a list");
        let digest = match listed.as_slice() {
            [only] => only["digest"].as_str().or_fail("a digest").to_owned(),
            _ => String::new(),
        };
        let top = blobs.get(&digest).cloned().unwrap_or(index);
        let content = Content { top, blobs };
        Self { server: start(Box::new(move |request, _| content.answer(request))), digest }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The reference of what it serves.
    pub fn reference(&self) -> String {
        format!("docker://{}/disks/vm:1", self.address())
    }

    /// The digest of the only image or index.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl Content {
    fn answer(&self, request: &Request) -> Reply {
        let (path, name) = request.path().rsplit_once('/').unwrap_or_default();
        let blob = self.blobs.get(name);
        match path {
            "/v2" => Reply::of("{}"),
            "/v2/disks/vm/manifests" if name == "1" => manifest(&self.top),
            "/v2/disks/vm/manifests" if blob.is_some() => manifest(blob.or_fail(name)),
            "/v2/disks/vm/blobs" if blob.is_some() => part(request, blob.or_fail(name)),
            _ => Reply::status(404, ""),
        }
    }
}

fn manifest(bytes: &[u8]) -> Reply {
    let document: Value = serde_json::from_slice(bytes).or_fail("a manifest");
    let media_type = document["mediaType"].as_str().or_fail("a media type");
    Reply::of(bytes.to_vec()).with("Content-Type", media_type)
}

/// The whole blob, or the range of it that is requested.
fn part(request: &Request, blob: &[u8]) -> Reply {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let Some((start, end)) = range.and_then(|range| range.split_once('-')) else {
        return Reply::of(blob.to_vec());
    };
    let start: usize = start.parse().or_fail("an offset");
    let end = end.parse().map_or(blob.len(), |last: usize| blob.len().min(last + 1));
    let content_range = format!("bytes {start}-{}/{}", end - 1, blob.len());
    Reply::status(206, blob[start..end].to_vec()).with("Content-Range", content_range)
}
