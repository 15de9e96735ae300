//! Node pull: a side container with the user's image serves the disk, and files signal when each
//! side is ready.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use datapath::source::Source;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::message::PodImportError;

/// Pause between two checks for the ready file, and the number of checks.
pub(super) const POLL: Duration = Duration::from_secs(1);
const POLLS: u32 = 60;

/// Maximum length of the file name in the ready file (`NAME_MAX` is 255).
const MAX_READY_BYTES: u64 = 4096;
/// Maximum size of the information about the container.
const MAX_INFO_BYTES: usize = 1 << 20;

/// Name of the disk in the endpoint, used until the side container provides the actual name.
const DEFAULT_DISK: &str = "disk.img";

/// Waits until `file` exists and returns its content: the name of the disk in the side container.
/// Fails after [`POLLS`] checks.
pub(super) fn wait_for_ready(
    file: &Path,
    poll: Duration,
    stop: &CancellationToken,
) -> Result<String, PodImportError> {
    for _ in 0..POLLS {
        if file.exists() {
            return read_name(file).map_err(|error| {
                PodImportError::from_process(format_args!("cannot read {}: {error}", file.display()))
            });
        }
        std::thread::sleep(poll);
        if stop.is_cancelled() {
            return Err(PodImportError::Stopped);
        }
    }
    Err(PodImportError::Text(format!("Timeout waiting for file {}", file.display())))
}

fn read_name(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(fs::File::open(file)?, MAX_READY_BYTES), &mut text)?;
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
    url.set_path("/info");
    url
}

/// Reads labels for the volume from the environment of the user's container, which is the JSON
/// `{"env": ["NAME=value", …]}`. A failure is only logged, because labels are optional.
pub(super) fn read_labels(info: &dyn Source) -> BTreeMap<String, String> {
    match read_info(info) {
        Ok(variables) => labels_of(&variables),
        Err(error) => {
            tracing::error!("cannot read the labels of the container: {error}");
            BTreeMap::new()
        }
    }
}

/// Returns the labels among the variables of a container. Each variable is `NAME=value`.
pub(super) fn labels_of(variables: &[String]) -> BTreeMap<String, String> {
    variables.iter().filter_map(|variable| parse_label(variable)).collect()
}

fn read_info(info: &dyn Source) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct InfoResponse {
        #[serde(default)]
        env: Vec<String>,
    }
    let mut body = info.open_body().map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    while let Some(chunk) = body.next_chunk().map_err(|error| error.to_string())? {
        if text.len() + chunk.len() > MAX_INFO_BYTES {
            return Err(format!("the answer has more than {MAX_INFO_BYTES} bytes"));
        }
        text.extend_from_slice(&chunk);
    }
    let info: InfoResponse = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(info.env)
}

/// Converts `A_B_KUBEVIRT_IO_C_D=v` to the label `a.b.kubevirt.io/c-d: v`. Returns `None` for
/// other variables.
fn parse_label(variable: &str) -> Option<(String, String)> {
    const MARK: &str = "KUBEVIRT_IO_";
    let (name, value) = variable.split_once('=')?;
    let (before, after) = name.split_once(MARK)?;
    let domain: String = before.trim_end_matches('_').split('_').filter(|part| !part.is_empty()).fold(
        String::new(),
        |mut domain, part| {
            domain.push_str(part);
            domain.push('.');
            domain
        },
    );
    let key = format!("{domain}kubevirt.io/{}", after.replace('_', "-"));
    Some((key.to_lowercase(), value.to_owned()))
}

/// Creates the done file, by which the side container knows that its disk is no longer needed. The
/// file must not exist yet. A failure is only logged.
pub(super) fn create_done_file(file: &Path) {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o666).open(file);
    if let Err(error) = created {
        tracing::error!("cannot create {}: {}", file.display(), datapath::error::errno_text(&error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

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
        let Err(PodImportError::Text(text)) = wait_for_ready(&file, TICK, &stop) else { panic!("no file") };
        assert_eq!(text, format!("Timeout waiting for file {}", file.display()));
        fs::write(&file, "fedora.qcow2\n").unwrap();
        assert_eq!(wait_for_ready(&file, TICK, &stop).unwrap(), "fedora.qcow2");
        stop.cancel();
        assert!(matches!(
            wait_for_ready(&folder.path().join("never"), TICK, &stop),
            Err(PodImportError::Stopped)
        ));
    }

    #[test]
    fn variables_of_kubevirt_become_labels() {
        for (variable, key, value) in [
            ("TEST_TEST_KUBEVIRT_IO_TEST_TEST=v", "test.test.kubevirt.io/test-test", "v"),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
                "instancetype.kubevirt.io/default-instancetype",
                "u1.small",
            ),
            ("KUBEVIRT_IO_X=a=B", "kubevirt.io/x", "a=B"),
        ] {
            assert_eq!(parse_label(variable), Some((key.to_owned(), value.to_owned())));
        }
        for variable in ["PATH=/bin", "KUBEVIRT_IO_X", "KUBEVIRT_IO=1", ""] {
            assert_eq!(parse_label(variable), None, "{variable}");
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
