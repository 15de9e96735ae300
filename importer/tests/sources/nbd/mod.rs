//! The NBD source against `qemu-nbd`, `nbdkit` and servers that misbehave.

mod breaks;
mod hostile;
mod servers;
mod tls;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetch::{Network, RetryPolicy};
use hypervisors::nbd::NbdSource;
use stream::error::SourceError;
use stream::source::{Source, SourceBody};
use stream::zeros::is_known_zero;
use testkit::{certs, disk};
use tokio_util::sync::CancellationToken;

use crate::network as access;

fn connections(count: usize) -> Network {
    Network { connections: NonZeroUsize::new(count), ..access() }
}

fn open_with(uri: &str, access: &Network) -> Result<NbdSource, SourceError> {
    NbdSource::open(uri, &Arc::new(access.clone()))
}

fn open(uri: &str) -> Result<NbdSource, SourceError> {
    open_with(uri, &access())
}

/// The bytes that a body delivered.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// Number of bytes that were known to be zeros.
    zeros: usize,
}

fn receive(body: &mut dyn SourceBody) -> Result<Received, SourceError> {
    let mut received = Received::default();
    while let Some(chunk) = body.next_chunk()? {
        assert!(!chunk.is_empty());
        if is_known_zero(&chunk) {
            received.zeros += chunk.len();
        }
        received.bytes.extend_from_slice(&chunk);
    }
    Ok(received)
}

fn fetch_with(uri: &str, access: &Network) -> Result<Received, SourceError> {
    receive(&mut *open_with(uri, access)?.open_body()?)
}

fn fetch(uri: &str) -> Result<Received, SourceError> {
    fetch_with(uri, &access())
}

/// The error of an import that must fail.
fn failure(uri: &str) -> String {
    fetch(uri).map(|_| ()).unwrap_err().to_string()
}

/// A raw disk of `length` bytes in `folder`, sparse where it is zero.
fn sparse_disk(folder: &Path, length: u64) -> (std::path::PathBuf, Vec<u8>) {
    let bytes = disk::sparse_content(7, length, 8);
    let (dense, path) = (folder.join("dense"), folder.join("sparse"));
    std::fs::write(&dense, &bytes).unwrap();
    let args = ["--sparse=always".as_ref(), dense.as_os_str(), path.as_os_str()];
    testkit::tools::run("cp", args);
    (path, bytes)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn shared_tls(authority: &certs::Authority) -> Network {
    Network { tls: Arc::clone(&authority.client_config().unwrap()), ..access() }
}
