//! Error messages for failed transfers on the command line. A message names the source that the
//! error concerns, and contains the error's own text and advice on what to do.

use std::io::ErrorKind;
use std::path::Path;

use reporting::messages;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use stream::Error;
use stream::error::{
    ArchiveErrorKind, DecodeError, FormatError, SourceAdvice, SourceError, SourceErrorKind,
    TargetError,
};
use stream::options::KEEP_BY_OPTION;

/// Advice for a source that needs credentials.
pub(super) const GIVE_LOGIN: &str = "give --user and --password-file";

/// Advice for incomplete content.
const FETCH_AGAIN: &str = "fetch it again";

/// Returns the message for `error`, which ended a transfer from `source`. If the error concerns
/// the content, the message begins with the name of the source, unless the error's own text
/// contains it.
pub(super) fn describe(error: &Error, source: Option<&str>) -> String {
    let (text, advice) = match error {
        Error::Source(error) => (error.plain_words().to_owned(), source_advice(error)),
        Error::Decode(error) => (decode_text(error), decode_advice(error)),
        Error::Format(error) => (format_text(error), format_advice(error)),
        Error::Checksum(mismatch) => (
            mismatch.to_string(),
            Some("fetch it again, or check the expected checksum".to_owned()),
        ),
        Error::Target(error) if error.source.kind() == ErrorKind::AlreadyExists => {
            (format!("{error}: pass --force to replace it"), None)
        }
        Error::Target(error) => (error.to_string(), target_advice(error)),
        Error::Thread(_) | Error::Stopped => (error.to_string(), None),
    };
    let names_source =
        matches!(error, Error::Decode(_) | Error::Format(_) | Error::Checksum { .. });
    let place = source.filter(|source| names_source && !text.contains(source));
    let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
    let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
    let keep = if error.can_be_kept() { KEEP_BY_OPTION } else { "" };
    format!("{place}{text}{advice}{keep}")
}

fn source_advice(error: &SourceError) -> Option<String> {
    let advice = match error.advice() {
        Some(SourceAdvice::InMessage) => return None,
        Some(SourceAdvice::WriteUrl) => "write https://HOST:PORT/PATH",
        Some(SourceAdvice::TrustAuthority) => "--cacert PATH adds authorities",
        Some(SourceAdvice::CheckAddress) => "check the address",
        Some(SourceAdvice::GiveLogin) => GIVE_LOGIN,
        Some(SourceAdvice::CheckExport) => "check the name after the host",
        Some(SourceAdvice::CheckSocket) => "check the path of the socket",
        Some(SourceAdvice::NameDirectory) => "an image layout is a directory: oci:DIRECTORY:NAME",
        Some(SourceAdvice::NameTar) => "oci-archive: reads the tar of an image layout",
        Some(SourceAdvice::FetchMap) => "fetch the map of the backup again",
        Some(SourceAdvice::CopyBackup) => "copy the file from the backup's storage again",
        Some(SourceAdvice::CheckObject) => "check the name of the object",
        Some(SourceAdvice::CheckBucket) => {
            "check the name of the bucket, AWS_REGION and AWS_ENDPOINT_URL"
        }
        Some(SourceAdvice::GiveKeys) => {
            "use keys that may read the object: --user and --password-file"
        }
        Some(SourceAdvice::CheckUser) => "check --user",
        Some(SourceAdvice::CheckPassword) => "check --password-file",
        Some(SourceAdvice::CheckLogin) => "check --user and --password-file",
        Some(SourceAdvice::CheckImage) => "check the name of the image",
        Some(SourceAdvice::CheckTag) => "check the name and the tag of the image",
        None => match error.kind() {
            SourceErrorKind::Connect => "is the address right, and is its server running?",
            SourceErrorKind::UnknownHost => "is the address right?",
            SourceErrorKind::Length | SourceErrorKind::Digest | SourceErrorKind::Changed => {
                "try again"
            }
            _ => return None,
        },
    };
    Some(advice.to_owned())
}

fn decode_text(error: &DecodeError) -> String {
    match error {
        DecodeError::Empty => "the source is empty: 0 bytes were read".to_owned(),
        _ => error.to_string(),
    }
}

fn decode_advice(error: &DecodeError) -> Option<String> {
    let advice = match error {
        DecodeError::Empty => "check what it should contain",
        DecodeError::Truncated { .. } => FETCH_AGAIN,
        DecodeError::Corrupt { .. } => "fetch it again, and compare its checksum (--checksum)",
        DecodeError::TrailingGarbage { .. } => "remove them, or fetch it again",
        DecodeError::TooDeep { .. } => "decompress it first",
        _ => return None,
    };
    Some(advice.to_owned())
}

fn format_text(error: &FormatError) -> String {
    match error {
        // CDI's message refers to a claim, but here the target is a file or a device.
        FormatError::TooLarge { virtual_size, available } => {
            messages::plain_too_large(*virtual_size, *available)
        }
        FormatError::Archive(archive) if archive.kind == ArchiveErrorKind::NotTar => {
            "this does not look like a tar archive".to_owned()
        }
        _ => error.to_string(),
    }
}

fn format_advice(error: &FormatError) -> Option<String> {
    let advice = match error {
        FormatError::Image(error) => match error {
            diskimage::Error::NotThatFormat { .. } => "leave out --format to detect it",
            diskimage::Error::NothingToCheck => "compare its checksum instead",
            _ => error.remedy()?,
        },
        FormatError::NoDelta => {
            "`cdi-importer import` writes whole images, and --no-backing-name applies KubeVirt's incremental backups"
        }
        FormatError::TooLarge { .. } => "choose a larger target, or a larger --size for a file",
        FormatError::Base { found, expected } if is_path_of(expected, found) => {
            "--base takes the name without directories"
        }
        FormatError::NamedBase { .. } => {
            "if the target is its base disk, pass the name with --base"
        }
        FormatError::Base { .. } => "apply the delta to the disk that it was made from",
        FormatError::Archive(error) => match error.kind {
            ArchiveErrorKind::NotTar => {
                "`cdi-importer info` shows what it is, and `cdi-importer import` writes disk images"
            }
            ArchiveErrorKind::NotAppliance => "leave out --ova for a disk image",
            ArchiveErrorKind::Truncated(_) | ArchiveErrorKind::Damaged(_) => FETCH_AGAIN,
            ArchiveErrorKind::NoDisk { .. } => "import the disk file itself",
            ArchiveErrorKind::Name(_)
            | ArchiveErrorKind::Symlink(_)
            | ArchiveErrorKind::Misplaced(_) => "create the archive again without this entry",
            _ => return None,
        },
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Returns true if `path` is `name` with directories before it.
fn is_path_of(path: &str, name: &str) -> bool {
    path != name && Path::new(path).file_name().is_some_and(|last| last == name)
}

fn target_advice(error: &TargetError) -> Option<String> {
    let path = Path::new(&error.path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_not_permitted = error.source.raw_os_error() == Some(Errno::PERM.raw_os_error());
    let advice = match error.source.kind() {
        ErrorKind::StorageFull => "free some space, or choose another target",
        ErrorKind::FileTooLarge if getrlimit(Resource::Fsize).current.is_some() => {
            "this process may not write larger files: raise `ulimit -f`"
        }
        ErrorKind::FileTooLarge => {
            "its filesystem does not support files of that size, so choose another one"
        }
        ErrorKind::NotADirectory => "a part of the path is a file, so check the path",
        ErrorKind::ReadOnlyFilesystem => "mount it writable, or choose another target",
        ErrorKind::ResourceBusy => {
            "unmount it or end the program that uses it, or choose another target"
        }
        // The system opens a read-only device for writing, and refuses only the writes.
        ErrorKind::PermissionDenied if error.action == "write" || is_not_permitted => {
            "it is read-only: choose another target"
        }
        ErrorKind::PermissionDenied => "choose another target, or another user",
        ErrorKind::NotFound if error.path.contains("://") => {
            "a target is a file or a block device on this machine"
        }
        ErrorKind::NotFound => match folder.filter(|folder| !folder.exists()) {
            Some(folder) => {
                return Some(format!("create the directory {} first", folder.display()));
            }
            None if error.action == "create" => "choose another directory",
            None if error.action == "statfs" => "create the directory first",
            None => "create it first",
        },
        _ => return None,
    };
    Some(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_sentence_names_the_source_and_one_remedy() {
        let truncated = Error::from(DecodeError::Truncated { codec: "gzip", offset: 5 });
        let said = describe(&truncated, Some("disk.gz"));
        assert_eq!(
            said,
            "disk.gz: the gzip stream is truncated after 5 compressed bytes; fetch it again"
        );
        let unsupported = Error::from(FormatError::from(diskimage::Error::NothingToCheck));
        assert!(describe(&unsupported, None).starts_with("the image is raw"));
        let connect = SourceError::new(SourceErrorKind::Connect, "TLS with h: is it http://?")
            .with_advice(SourceAdvice::InMessage);
        assert_eq!(describe(&connect.into(), Some("h")), "TLS with h: is it http://?");
    }

    #[test]
    fn only_an_entry_that_cannot_be_unpacked_is_left_out_of_the_archive() {
        let advice = |kind| {
            let error = stream::error::ArchiveError { kind, offset: 512, entry: None };
            describe(&FormatError::from(error).into(), None)
        };
        let damaged = advice(ArchiveErrorKind::Damaged("a header".to_owned()));
        assert!(damaged.ends_with("; fetch it again"), "{damaged}");
        let outside = advice(ArchiveErrorKind::Name("is empty"));
        assert!(outside.ends_with("; create the archive again without this entry"), "{outside}");
        let full = advice(ArchiveErrorKind::NoRoom { needed: 5, available: 4 });
        assert!(full.ends_with("A larger PVC is required (at byte 0x200 of the tar)"), "{full}");
    }

    #[test]
    fn a_base_that_is_given_with_its_folders_is_recognized() {
        for (path, is_so) in [("/a/base.img", true), ("base.img", false), ("/a/other.img", false)] {
            assert_eq!(is_path_of(path, "base.img"), is_so, "{path}");
        }
    }

    #[test]
    fn the_missing_directory_is_named() {
        let source = io::Error::from(ErrorKind::NotFound);
        let error = TargetError { action: "create", path: "/nope/disk.img".to_owned(), source };
        assert_eq!(target_advice(&error).as_deref(), Some("create the directory /nope first"));
    }
}
