//! Serves the disk, from finding it in the image until the importer is done.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use program::local_http::serve_http;
use program::paths::PodPaths;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::answer::ServedContent;
use crate::disk::ServedDisk;
use crate::handoff::{self, ReadyFile};

/// Maximum number of simultaneous connections. The importer needs only a few; further ones wait
/// until another connection ends.
const MAX_CONNECTIONS: usize = 64;

/// The settings of the server: the disk to serve, and the files that signal its progress.
pub(crate) struct ServeConfig {
    pub(crate) port: u16,
    pub(crate) image_dir: PathBuf,
    pub(crate) ready_file: PathBuf,
    pub(crate) done_file: PathBuf,
    pub(crate) paths: PodPaths,
    pub(crate) environment: Vec<(String, String)>,
}

/// Serves the disk until the importer is done, and returns true, or until `stop` is cancelled. The
/// error is the reason why nothing can be served.
pub(crate) async fn run(config: &ServeConfig, stop: &CancellationToken) -> Result<bool, String> {
    let disk = ServedDisk::find_disk(&config.image_dir, &config.paths)?;
    let listen =
        |error: io::Error| format!("Failed listening on localhost:{}: {error}", config.port);
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await.map_err(listen)?;
    let port = socket.local_addr().map_err(listen)?.port();
    // `localhost` may resolve to either address. In a pod without IPv6, only the first one can be
    // used.
    let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
    let ready = ReadyFile::announce_disk(&config.ready_file, &disk.name).map_err(|error| {
        format!("Failed creating \"ready\" file {}: {error}", config.ready_file.display())
    })?;
    tracing::info!(
        "Serving {} on HTTP port: {port}",
        config.image_dir.join(String::from_utf8_lossy(&disk.name).as_ref()).display()
    );
    let site = Arc::new(ServedContent::new(disk, &config.environment));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for socket in second.into_iter().chain([socket]) {
        let site = Arc::clone(&site);
        tokio::spawn(serve_http(socket, Arc::clone(&places), move |request| {
            let answer = site.answer_request(request);
            tracing::debug!(
                method = %request.method(),
                path = request.uri().path(),
                status = answer.status().as_u16(),
                "answered"
            );
            answer
        }));
    }
    let done = stop.run_until_cancelled(handoff::wait_for_done(&config.done_file)).await;
    drop(ready);
    Ok(done.is_some())
}
