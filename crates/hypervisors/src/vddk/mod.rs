//! Disks of VMware machines, through nbdkit and VMware's library (VDDK), from the ESXi host
//! ([`crate::nfc`]), or by a lease.
//!
//! ```text
//!  VddkSource ── open ──► vSphere (SOAP): machine, snapshot, file, changes
//!                           ├──► NbdkitProcess (a child) ──► NbdSource over its socket
//!                           ├──► TicketDesk ──► NfcSource
//!                           └──► ExportLease ──► HttpSource
//! ```
//!
//! If an earlier checkpoint is given, the bytes are the ranges that changed since then, one after
//! the other.

mod address;
#[doc(hidden)] // for the fuzz targets
pub mod answer;
#[doc(hidden)] // for the fuzz targets
pub mod areas;
mod change_id;
mod changes;
mod disk;
mod inventory;
mod lease;
mod log;
mod nbdkit;
mod options;
mod reading;
pub(crate) mod soap;
mod source;
mod survey;

pub use program::report::VddkInfo;

pub use self::inventory::MachineEntry;
pub use self::nbdkit::{END_LIMIT, RUN_WITH_PARENT};
pub use self::options::{VddkInstallation, VddkOptions, VddkSourceOptions, VmwareTransport};
pub use self::soap::require_credentials;
pub use self::source::VddkSource;
pub use self::survey::{MachineSurvey, VmwareSurvey};
