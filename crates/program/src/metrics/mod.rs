//! Metrics of one process, collected in a [`MetricsRegistry`]. The crate `https` provides the
//! endpoint that serves them.
//!
//! The text format is written by this module and not by `prometheus-client` (0.25). That crate
//! writes OpenMetrics (`# TYPE` without `_total`, `# EOF`, exponents) and shows every series from
//! the start. CDI's controllers read the progress line with a regular expression that allows one
//! label, one space and no exponent, and the progress series must not exist before its first
//! update.

mod histogram;
mod process;
mod progress;
mod registry;
mod value;

pub use histogram::{Histogram, TRANSFER_BYTES, TRANSFER_SECONDS};
pub use progress::ProgressMetric;
pub use registry::MetricsRegistry;
pub use value::{Counter, Gauge};

/// Name and help text of the importer's progress, as CDI's controllers and alert rules expect
/// them.
pub const IMPORT_PROGRESS: (&str, &str) =
    ("kubevirt_cdi_import_progress_total", "The import progress in percentage");

/// Name and help text of the cloner's progress.
pub const CLONE_PROGRESS: (&str, &str) =
    ("kubevirt_cdi_clone_progress_total", "The clone progress in percentage");

/// Name and help text of the OpenStack populator's progress, as its controller expects them.
pub const OPENSTACK_PROGRESS: (&str, &str) = (
    "kubevirt_cdi_openstack_populator_progress_total",
    "The progress of the volume that is filled from OpenStack in percentage",
);

/// Name and help text of the oVirt populator's progress.
pub const OVIRT_PROGRESS: (&str, &str) = (
    "kubevirt_cdi_ovirt_progress_total",
    "The progress of the volume that is filled from oVirt in percentage",
);
