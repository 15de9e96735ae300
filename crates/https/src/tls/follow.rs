//! The certificate that a server presents to clients, reloaded while the server runs.
//!
//! The kubelet replaces the files of a mounted Secret by swapping a symbolic link. Reading a few
//! kilobytes every second detects such a change as reliably as a file watch, and works on every
//! file system.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use program::metrics::Gauge;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::interval;

use super::{ServerFiles, TlsError, TlsProfile};

/// Interval between two reads of the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns the TLS configuration of a listener with the certificate in `files`, and keeps it up to
/// date. Changes of the files or the profile apply to all later handshakes. Unusable files are
/// ignored. `expiry` is set to the end of the current certificate's validity.
pub async fn follow_files(
    files: ServerFiles,
    expiry: Gauge,
    mut profile: watch::Receiver<TlsProfile>,
) -> Result<watch::Receiver<Arc<ServerConfig>>, TlsError> {
    let mut used = read_files(&files).ok();
    let first = build_config(&files, &profile.borrow_and_update())?;
    show_expiry(&files, &expiry);
    let (config, receiver) = watch::channel(first);
    tokio::spawn(async move {
        let mut ticks = interval(INTERVAL);
        let mut refused = None;
        loop {
            let is_other_profile = tokio::select! {
                changed = profile.changed() => match changed {
                    Ok(()) => true,
                    // The sender is gone, so the profile will not change again. The files still
                    // may.
                    Err(_) => { ticks.tick().await; false }
                },
                _ = ticks.tick() => false,
            };
            let found = read_files(&files).ok();
            // Files that were rejected are not tried again, so that each error is logged only
            // once.
            let is_new = found.is_some() && found != used && found != refused;
            if !is_new && !is_other_profile {
                continue;
            }
            let current = profile.borrow_and_update().clone();
            match build_config(&files, &current) {
                Ok(next) => {
                    tracing::info!(
                        "using {}",
                        if is_new { "a new certificate" } else { "a new TLS profile" }
                    );
                    show_expiry(&files, &expiry);
                    config.send_replace(next);
                    used = found;
                }
                Err(error) => {
                    tracing::warn!("keeping the previous certificate: {error}");
                    refused = found;
                }
            }
        }
    });
    Ok(receiver)
}

fn show_expiry(files: &ServerFiles, expiry: &Gauge) {
    expiry.set(files.expiry_seconds().unwrap_or(0) as f64);
}

fn read_files(files: &ServerFiles) -> io::Result<[Vec<u8>; 2]> {
    // Blocking calls are acceptable in this task: the files have a few kilobytes, and the kubelet
    // keeps mounted Secrets in memory.
    Ok([std::fs::read(&files.certificate)?, std::fs::read(&files.key)?])
}

fn build_config(files: &ServerFiles, profile: &TlsProfile) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = files.server_config(profile)?;
    // Only HTTP/1.1 is offered, as in upstream: a connection carries one body or one page of
    // metrics, so multiplexing has no benefit.
    config.alpn_protocols.clear();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::tls::AuthorityFiles;

    async fn is_new(receiver: &mut watch::Receiver<Arc<ServerConfig>>) -> bool {
        let changed = timeout(INTERVAL * 3, receiver.changed()).await;
        changed.is_ok_and(|changed| changed.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn new_files_and_a_new_profile_are_used_but_broken_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let authority = AuthorityFiles::in_dir(dir.path());
        let create = || authority.create_files(&["localhost".to_owned()], "client").unwrap();
        create();
        let files = ServerFiles {
            certificate: authority.server.0.clone(),
            key: authority.server.1.clone(),
            client_ca: None,
        };
        let (profile, followed) = watch::channel(TlsProfile::default());
        let expiry = Gauge::default();
        let mut receiver = follow_files(files, expiry.clone(), followed).await.unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(expiry.value() > now.as_secs_f64(), "{}", expiry.value());
        create();
        assert!(is_new(&mut receiver).await, "a new certificate");
        std::fs::write(&authority.server.1, "no key").unwrap();
        assert!(!is_new(&mut receiver).await, "a broken key");
        create();
        assert!(is_new(&mut receiver).await, "a good one again");
        profile.send_replace(TlsProfile::new("VersionTLS13", ""));
        assert!(is_new(&mut receiver).await, "another profile");
        drop(profile);
        create();
        assert!(is_new(&mut receiver).await, "files are followed without a profile");
    }
}
