//! Node pull: a side container with the user's image serves the disk, and files signal when each
//! side is ready.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fetch::whole::read_whole;
use stream::source::Source;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::message::PodImportError;

/// The wait of a pod for the ready file. Before the side container starts, the kubelet pulls the
/// user's image: cdi#4253 measured 114 s for one pull.
pub(super) const READY_WAIT: FileWait =
    FileWait { poll: Duration::from_secs(1), limit: Duration::from_secs(30 * 60) };

/// Maximum length of the file name in the ready file (`NAME_MAX` is 255).
const MAX_READY_BYTES: u64 = 4096;
/// Maximum size of the information about the container.
const MAX_INFO_BYTES: usize = 1 << 20;

/// Path of the information about the container.
const INFO: &str = "/info";

/// Name of the disk in the endpoint, used until the side container provides the actual name.
const DEFAULT_DISK: &str = "disk.img";

/// A wait for a file that another container creates.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileWait {
    /// Pause between two checks.
    pub(super) poll: Duration,
    /// Longest wait; the file is checked for once more at its end.
    pub(super) limit: Duration,
}

/// Waits until `file` exists and returns its content: the name of the disk in the side container.
pub(super) fn wait_for_ready(
    file: &Path,
    wait: FileWait,
    stop: &CancellationToken,
) -> Result<String, PodImportError> {
    let start = Instant::now();
    loop {
        if file.exists() {
            return read_name(file).map_err(|error| {
                PodImportError::from_process(format_args!(
                    "cannot read {}: {error}",
                    file.display()
                ))
            });
        }
        let left = wait.limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(PodImportError::Text(format!(
                "Timeout waiting for file {}",
                file.display()
            )));
        }
        std::thread::sleep(wait.poll.min(left));
        if stop.is_cancelled() {
            return Err(PodImportError::Stopped);
        }
    }
}

fn read_name(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(
        &mut io::Read::take(fs::File::open(file)?, MAX_READY_BYTES),
        &mut text,
    )?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns `endpoint` with its trailing `disk.img` replaced by `name`. An empty name changes
/// nothing.
pub(super) fn endpoint_of(endpoint: &Url, name: &str) -> Url {
    let mut url = endpoint.clone();
    if let Some(folder) = endpoint.path().strip_suffix(DEFAULT_DISK)
        && !name.is_empty()
    {
        // Segments instead of `set_path`: a `?` or `%` in the name is part of the name and has to
        // be escaped.
        url.set_path(folder);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(name.split('/'));
        }
    }
    url
}

/// Returns the URL where the side container provides information about itself.
pub(super) fn info_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    url.set_path(INFO);
    url
}

/// Reads the environment of the user's container, which is the JSON `{"env": ["NAME=value", …]}`. A
/// failure is only logged, because labels are optional.
pub(super) fn read_variables(info: &dyn Source) -> Vec<String> {
    read_info(info).unwrap_or_else(|error| {
        tracing::error!("cannot read the labels of the container: {error}");
        Vec::new()
    })
}

fn read_info(info: &dyn Source) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct InfoResponse {
        #[serde(default)]
        env: Vec<String>,
    }
    let text = info.open_body().and_then(|mut body| read_whole(&mut *body, MAX_INFO_BYTES, INFO));
    let text = text.map_err(|error| error.to_string())?;
    let info: InfoResponse = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(info.env)
}

/// Creates the done file, by which the side container knows that its disk is no longer needed. The
/// file must not exist yet. A failure is only logged.
pub(super) fn create_done_file(file: &Path) {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o666).open(file);
    if let Err(error) = created {
        tracing::error!("cannot create {}: {}", file.display(), stream::error::errno_text(&error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: FileWait =
        FileWait { poll: Duration::from_millis(1), limit: Duration::from_millis(50) };

    fn renamed(name: &str) -> String {
        endpoint_of(&Url::parse("http://localhost:8100/disk.img").unwrap(), name).into()
    }

    #[test]
    fn the_ready_file_names_the_disk() {
        for (name, url) in [
            ("", "http://localhost:8100/disk.img"),
            ("fedora.qcow2", "http://localhost:8100/fedora.qcow2"),
            ("sub/a b.img", "http://localhost:8100/sub/a%20b.img"),
            ("what?#%41", "http://localhost:8100/what%3F%23%2541"),
        ] {
            assert_eq!(renamed(name), url);
        }
        let other = Url::parse("http://localhost:8100/other").unwrap();
        assert_eq!(endpoint_of(&other, "x"), other, "only a trailing disk.img is replaced");
        assert_eq!(info_url(&other).as_str(), "http://localhost:8100/info");
    }

    #[test]
    fn waiting_for_the_ready_file_ends_with_the_file_or_a_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let (file, stop) = (folder.path().join("ready"), CancellationToken::new());
        let Err(PodImportError::Text(text)) = wait_for_ready(&file, SHORT, &stop) else {
            panic!("no file")
        };
        assert_eq!(text, format!("Timeout waiting for file {}", file.display()));
        fs::write(&file, "fedora.qcow2\n").unwrap();
        assert_eq!(wait_for_ready(&file, SHORT, &stop).unwrap(), "fedora.qcow2");
        stop.cancel();
        assert!(matches!(
            wait_for_ready(&folder.path().join("never"), SHORT, &stop),
            Err(PodImportError::Stopped)
        ));
    }

    #[test]
    fn a_file_is_waited_for_as_long_as_a_pull_may_take_and_checked_for_at_the_end() {
        let polls = READY_WAIT.limit.as_secs() / READY_WAIT.poll.as_secs();
        assert_eq!((READY_WAIT.poll, polls), (Duration::from_secs(1), 1800));
        let folder = tempfile::tempdir().unwrap();
        // After more polls than 60, and between the last regular poll and the end.
        for (poll, created, limit) in [(1, 200, 20_000), (60_000, 50, 300)] {
            let file = folder.path().join(format!("ready-{poll}"));
            let [poll, created, limit] = [poll, created, limit].map(Duration::from_millis);
            let creator = std::thread::spawn({
                let file = file.clone();
                move || {
                    std::thread::sleep(created);
                    let written = file.with_extension("new");
                    fs::write(&written, "disk.img").unwrap();
                    fs::rename(written, file).unwrap();
                }
            });
            let name = wait_for_ready(&file, FileWait { poll, limit }, &CancellationToken::new());
            assert_eq!(name.unwrap(), "disk.img");
            creator.join().unwrap();
        }
    }

    #[test]
    fn an_existing_done_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("done");
        fs::write(&file, "old").unwrap();
        create_done_file(&file);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        fs::remove_file(&file).unwrap();
        create_done_file(&file);
        assert!(file.exists());
    }
}
