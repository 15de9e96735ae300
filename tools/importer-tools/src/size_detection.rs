//! `cdi-image-size-detection`: CDI's controller runs it on a volume that is to be cloned, to
//! determine how large the new volume must be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use program::env::NamedStrings;
use program::exit::ExitReason;
use program::flags::{KlogFlags, OwnFlag};
use program::job::{self, JobOutcome};
use program::paths::PodPaths;
use program::report;
use program::signal::ShutdownRequest;

use crate::image::{self, InspectionError};

pub(crate) const PROGRAM: &str = "cdi-image-size-detection";

const IMAGE_PATH: &str = "image-path";
const SCHEME: &str = "scheme";

/// The only supported scheme, which is for an image on a volume.
const FILE_SCHEME: &str = "file://";

const FLAGS: [OwnFlag; 2] = [
    OwnFlag {
        name: IMAGE_PATH,
        purpose: "(mandatory) path of the disk image, a file or block device",
    },
    OwnFlag {
        name: SCHEME,
        purpose: "scheme of the path; only file:// is supported (default file://)",
    },
];

/// A failure, with the exit code by which the controller distinguishes failures (contract, appendix
/// B).
struct SizeDetectionError {
    exit_code: u8,
    message: String,
}

impl SizeDetectionError {
    fn new(exit_code: u8, message: impl Into<String>) -> Self {
        Self { exit_code, message: message.into() }
    }
}

/// Writes the size of the disk given in `arguments` to the termination message.
pub(crate) fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let message = PodPaths::from_env(env).termination_log();
    program::start::start_pod(
        PROGRAM,
        &FLAGS,
        arguments,
        env,
        |_| Ok(()),
        |flags, (), shutdown| run(flags, message, shutdown),
    )
}

async fn run(flags: KlogFlags, message: PathBuf, shutdown: ShutdownRequest) -> ExitCode {
    let work = move || detect_size(&flags, &message);
    // There is nothing to clean up, so a signal ends the process at once, even while the volume
    // does not respond.
    match job::run_job(&shutdown, Duration::ZERO, || (), work).await {
        JobOutcome::Returned(Ok(bytes)) => {
            tracing::info!("Size-detection binary has completed: {bytes} bytes");
            ExitReason::Done.into()
        }
        JobOutcome::Returned(Err(failure)) => {
            tracing::error!("{}", failure.message);
            failure.exit_code.into()
        }
        JobOutcome::Failed(sentence) => {
            tracing::error!("{sentence}");
            ExitReason::Internal.into()
        }
        JobOutcome::Overdue(signal) => ExitReason::Signalled(signal).into(),
    }
}

/// Returns the size of the disk in bytes, which it also writes to the file `message`.
fn detect_size(flags: &KlogFlags, message: &Path) -> Result<u64, SizeDetectionError> {
    let scheme = flags.own_value(SCHEME).unwrap_or(FILE_SCHEME);
    if scheme != FILE_SCHEME {
        let message = format!("the scheme {scheme:?} of the image is not {FILE_SCHEME:?}");
        return Err(SizeDetectionError::new(1, message));
    }
    let [path] = flags
        .required_values([IMAGE_PATH])
        .map_err(|error| SizeDetectionError::new(1, error.to_string()))?;
    let facts = image::inspect_image(Path::new(&path), None).map_err(|cause| {
        let exit_code = match cause {
            InspectionError::Image(_) => 2,
            InspectionError::Path(_) => 3,
            InspectionError::Read(_) => 5,
        };
        let message = format!("Unable to extract information from '{path}': {cause}");
        SizeDetectionError::new(exit_code, message)
    })?;
    report::write_text(message, &facts.virtual_size.to_string()).map_err(|error| {
        SizeDetectionError::new(4, format!("Unable to write the size: {error}"))
    })?;
    Ok(facts.virtual_size)
}
