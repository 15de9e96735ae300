//! Error messages for a failed transfer, in the wording that CDI's controllers, tests and users
//! expect: a prefix that names the phase, followed by the cause.

use stream::Error;
use stream::error::{DecodeError, TargetError};
use stream::observe::TransferPhase;
use stream::options::KEEP_BY_HEADER;

const INFO: &str = "Unable to obtain information about data source: ";
const TRANSFER_FILE: &str = "Unable to transfer source data to target file: ";
const TRANSFER_DIR: &str = "Unable to transfer source data to target directory: ";
const CONVERT: &str = "Unable to convert source data to target format: ";
const MERGE: &str = "Unable to apply delta to base image: ";
const RESIZE: &str = "Unable to resize disk image to requested size: ";

/// The kind of result that a transfer produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductKind {
    /// A new disk.
    Disk,
    /// A directory with the files of an archive.
    Directory,
    /// An existing disk to which a delta is applied.
    Delta,
    /// An existing disk into which changed ranges are written.
    Changes,
}

impl ProductKind {
    /// True if the disk must exist before the transfer.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::Delta | Self::Changes)
    }
}

/// True if `error` only reports that the transfer was stopped on request, so that the data is not
/// at fault.
pub fn is_stop(error: &Error) -> bool {
    error.stage_and_kind().is_none()
}

/// True if the transfer could have succeeded on a larger volume.
pub fn is_too_small(error: &Error) -> bool {
    match error {
        Error::Format(format) => format.is_too_large(),
        Error::Target(target) => target.is_no_space(),
        _ => false,
    }
}

/// Returns the message for `error`, which ended the transfer of `made` in `phase`.
pub fn transfer_error_message(error: &Error, phase: TransferPhase, made: ProductKind) -> String {
    let transfer = match made {
        ProductKind::Disk | ProductKind::Changes => TRANSFER_FILE,
        ProductKind::Directory => TRANSFER_DIR,
        ProductKind::Delta => MERGE,
    };
    match error {
        Error::Decode(DecodeError::Empty | DecodeError::ShortHeader { .. }) => {
            format!("{INFO}{error}")
        }
        Error::Source(_) if phase == TransferPhase::Info => format!("{INFO}{error}"),
        // CDI's controllers search for this wording and then report that the source is at fault.
        Error::Source(_) => format!("{transfer}failed to pull image: {error}"),
        Error::Format(_) if made == ProductKind::Directory => {
            format!("{transfer}unable to untar files from endpoint: {error}")
        }
        Error::Format(_) if made == ProductKind::Disk => {
            format!("{CONVERT}{error}{}", keep_advice(error))
        }
        Error::Format(_) => format!("{transfer}{error}"),
        Error::Target(target) if phase == TransferPhase::Resize && made == ProductKind::Disk => {
            format!("{RESIZE}Resize of image failed: {target}")
        }
        Error::Target(target) => format!("{transfer}unable to write to file: {target}"),
        Error::Checksum { .. } | Error::Decode(_) | Error::Thread(_) | Error::Stopped => {
            format!("{transfer}{error}{}", keep_advice(error))
        }
    }
}

/// Returns the sentence for people about a disk of at least `virtual_size` bytes. CDI's sentence
/// refers to a claim.
pub fn plain_too_large(virtual_size: u64, available: u64) -> String {
    format!("the disk needs at least {virtual_size} bytes, and the target has room for {available}")
}

/// Returns the advice for an upload or a DataVolume whose content does not look like a disk.
pub fn keep_advice(error: &Error) -> &'static str {
    if error.can_be_kept() { KEEP_BY_HEADER } else { "" }
}

/// Returns the message for `error`, which means that the disk to be changed in place was not
/// found.
pub fn no_base(error: TargetError, made: ProductKind) -> String {
    match made {
        ProductKind::Changes => {
            format!(
                "{TRANSFER_FILE}Disk image does not exist, cannot apply deltas for warm migration: {error}"
            )
        }
        _ => transfer_error_message(&error.into(), TransferPhase::Transfer, made),
    }
}

/// Returns the message for a body that ends before its image format can be recognized.
pub fn header_cut(error: &Error) -> String {
    format!("{INFO}could not process image header: {error}")
}

/// Returns the message for a raw disk that is too large. Upstream detects this only when it
/// resizes the disk, so the message names that phase.
pub fn raw_too_large(error: &Error) -> String {
    format!("{RESIZE}{error}")
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use stream::error::{FormatError, SourceError, SourceErrorKind};

    use super::*;

    fn disk(error: impl Into<Error>, phase: TransferPhase) -> String {
        transfer_error_message(&error.into(), phase, ProductKind::Disk)
    }

    fn target(errno: Errno) -> TargetError {
        let source = std::io::Error::from_raw_os_error(errno.raw_os_error());
        TargetError { action: "write", path: "/data/disk.img".to_owned(), source }
    }

    fn too_large() -> FormatError {
        FormatError::TooLarge { virtual_size: 2, available: 1 }
    }

    #[test]
    fn every_error_has_the_wording_of_its_phase() {
        use TransferPhase::{Info, Resize, Transfer};
        let cut = || SourceError::new(SourceErrorKind::Length, "cut");
        let corrupt = DecodeError::TrailingGarbage { codec: "gzip", offset: 9 };
        let messages = [
            disk(DecodeError::Empty, Info),
            disk(DecodeError::ShortHeader { bytes: 64 }, Info),
            disk(cut(), Info),
            disk(cut(), Transfer),
            disk(corrupt, Transfer),
            disk(too_large(), Info),
            raw_too_large(&too_large().into()),
            disk(target(Errno::NOSPC), Transfer),
            disk(target(Errno::DQUOT), Resize),
            transfer_error_message(&cut().into(), Transfer, ProductKind::Directory),
        ];
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("messages", messages.join("\n")));
    }

    #[test]
    fn only_a_lack_of_space_means_too_small_and_a_stop_is_recognized() {
        assert!(is_too_small(&too_large().into()));
        assert!(is_too_small(&target(Errno::NOSPC).into()));
        assert!(!is_too_small(&target(Errno::IO).into()));
        assert!(is_stop(&Error::Stopped));
        assert!(is_stop(&SourceError::new(SourceErrorKind::Stopped, "x").into()));
        assert!(!is_stop(&SourceError::new(SourceErrorKind::Length, "x").into()));
    }
}
