//! The settings of a server, shared by the command line and the pod.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use https::tls::{ServerFiles, TlsProfile};
use program::progress::ProgressDisplay;
use volume::DiskRequest;
use volume::limits::TransferLimits;

use crate::access::ClientAccess;

/// Time without a byte after which the server gives up a client and accepts another one. Upstream
/// waits forever.
pub(crate) const STALL: Duration = Duration::from_secs(10 * 60);

/// Time for which an interrupted resumable upload waits for its client. It covers a night with a
/// closed laptop, and equals the time that CDI lets a pod live (contract §5.4). A waiting upload
/// holds a few MiB and makes way for another upload after ten seconds.
pub(crate) const RESUME: Duration = Duration::from_secs(12 * 60 * 60);

/// The settings of one upload server.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The address to listen on; empty for all.
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) tls: ServerFiles,
    pub(crate) profile: TlsProfile,
    pub(crate) access: ClientAccess,
    pub(crate) destination: UploadDestination,
    pub(crate) wanted: DiskRequest,
    /// Rejects images that end within their first 512 bytes; see
    /// [`datapath::options::ReadOptions::full_header`].
    pub(crate) full_header: bool,
    /// Time shortly before the certificates expire. From then on the server exits as soon as no
    /// upload is in progress.
    pub(crate) deadline: Option<SystemTime>,
    pub(crate) stall: Duration,
    pub(crate) resume: Duration,
    pub(crate) limits: TransferLimits,
    /// Exits after the first success, as CDI requires. Otherwise each upload replaces the previous
    /// one.
    pub(crate) once: bool,
    /// The display of running uploads, if there is one.
    pub(crate) display: Option<ProgressDisplay>,
}

/// The destination of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadDestination {
    /// The block device, or the file for a disk image.
    pub(crate) disk: PathBuf,
    /// The directory for archives.
    pub(crate) dir: PathBuf,
    /// The directory for clusters that fit nowhere else, if it is mounted.
    pub(crate) scratch: Option<PathBuf>,
}
