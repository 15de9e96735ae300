//! The settings of a server, shared by the command line and the pod.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use https::tls::{ServerFiles, TlsProfile};
use program::progress::ProgressDisplay;
use volume::DiskRequest;
use volume::limits::TransferLimits;

use crate::access::ClientAccess;

/// Time without a byte after which the server gives up on a client and accepts another one.
/// Upstream waits forever.
pub(crate) const STALL: Duration = Duration::from_secs(10 * 60);

/// Time for which an interrupted resumable upload waits for its client. It covers a night with a
/// closed laptop, and equals the lifetime that CDI allows a pod (contract §5.4). A waiting upload
/// occupies a few MiB of memory and makes way for another upload after ten seconds.
pub(crate) const RESUME: Duration = Duration::from_secs(12 * 60 * 60);

/// The settings of one upload server.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The address to listen on; an empty text means all addresses.
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) tls: ServerFiles,
    pub(crate) profile: TlsProfile,
    pub(crate) access: ClientAccess,
    pub(crate) destination: UploadDestination,
    pub(crate) wanted: DiskRequest,
    /// A time shortly before the certificates expire. From then on, the server exits as soon as no
    /// upload is in progress.
    pub(crate) deadline: Option<SystemTime>,
    pub(crate) stall: Duration,
    pub(crate) resume: Duration,
    pub(crate) limits: TransferLimits,
    /// True if the server exits after the first success, as CDI requires. Otherwise each upload
    /// replaces the previous one.
    pub(crate) once: bool,
    /// True in a pod. As in upstream, it rejects images that end within their first 512 bytes
    /// ([`stream::options::ReadOptions::full_header`]). The disk of a resumable raw upload stays
    /// after a signal, for the next server to continue: pods are deleted when a node is drained.
    pub(crate) is_pod: bool,
    /// The progress display for running uploads, if there is one.
    pub(crate) display: Option<ProgressDisplay>,
}

/// The destination of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadDestination {
    /// The path of the block device, or of the file for a disk image.
    pub(crate) disk: PathBuf,
    /// The directory for archives.
    pub(crate) dir: PathBuf,
    /// The scratch directory for image clusters that do not fit into memory, if it is mounted.
    pub(crate) scratch: Option<PathBuf>,
}
