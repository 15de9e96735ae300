//! The settings of a server, for both of its faces.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use https::tls::{ServerFiles, TlsProfile};
use program::progress::ProgressDisplay;
use volume::DiskRequest;
use volume::limits::TransferLimits;

use crate::access::ClientAccess;

/// Time without a byte after which a client is given up and the server free for another one. Upstream waits for ever.
pub(crate) const STALL: Duration = Duration::from_secs(10 * 60);

/// Time for which an interrupted resumable upload waits to be continued: a night with a closed laptop, and as long as CDI lets a pod
/// live (contract §5.4). It holds some MiB, and makes way for another upload after ten seconds.
pub(crate) const RESUME: Duration = Duration::from_secs(12 * 60 * 60);

/// Everything that a server needs to know.
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
    /// Refuse images that end within their first 512 bytes; see [`datapath::options::ReadOptions::full_header`].
    pub(crate) full_header: bool,
    /// Time at which the certificates will soon expire: the server ends as soon as nothing is in progress.
    pub(crate) deadline: Option<SystemTime>,
    pub(crate) stall: Duration,
    pub(crate) resume: Duration,
    pub(crate) limits: TransferLimits,
    /// End after the first success, as CDI wants it; otherwise each upload replaces the one before.
    pub(crate) once: bool,
    /// Where uploads are shown while they run.
    pub(crate) display: Option<ProgressDisplay>,
}

/// The destination of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadDestination {
    /// The device, or the file for a disk image.
    pub(crate) disk: PathBuf,
    /// The directory for archives.
    pub(crate) dir: PathBuf,
    /// The folder for clusters that fit nowhere else, if it is mounted.
    pub(crate) scratch: Option<PathBuf>,
}
