//! Names used in CDI's protocol between its proxy, upload servers and cloners (contract §2.4,
//! §2.7): paths, headers and certificates.

/// Version prefixes of upload paths. CDI's five paths exist below both prefixes with the same
/// meaning; our own paths exist only below the first.
const VERSIONS: [&str; 2] = ["/v1beta1/", "/v1alpha1/"];

/// Path for an upload in one request.
pub const UPLOAD: &str = "/v1beta1/upload";

/// The beginning of every curl command that we print. With `--fail-with-body`, curl shows the
/// response to a rejected upload and exits with an error. Every version of CDI accepts POST. `-T`
/// sends the file without reading it into memory first.
pub const CURL: &str = "curl --fail-with-body -X POST -T IMAGE";

/// Path for an upload that is answered before it has been fully processed. Every CDI upload server
/// answers a HEAD request for this path, whatever it is doing.
pub const UPLOAD_ASYNC: &str = "/v1beta1/upload-async";

/// Paths for archive uploads, in both versions.
pub const ARCHIVES: [&str; 2] = ["/v1beta1/upload-archive", "/v1alpha1/upload-archive"];

/// Ours, not CDI's: path that creates a resumable upload. Each upload then gets a path of its own
/// below this one.
pub const RESUMABLE: &str = "/v1beta1/upload-resumable";

/// Maximum length of the id of a resumable upload.
const MAX_RESUMABLE_ID: usize = 64;

/// Ours, not CDI's: request header that starts a resumable upload of a raw disk. It lists
/// checksums of prefixes that an earlier attempt may have left on the volume
/// (`stream::prefix_crc::PrefixCrc`), in ascending order and separated by commas.
pub const MARKS_HEADER: &str = "x-cdi-marks";

/// Ours, not CDI's: response header that answers [`MARKS_HEADER`]. Its value is the end of the
/// prefix that the server keeps, 0 if it keeps nothing, or [`KEPT_LATER`]. The client then omits
/// the bytes between the first MiB of the disk and that end.
pub const KEPT_HEADER: &str = "x-cdi-kept";

/// The server is still searching for the prefix to keep. A HEAD request returns the result, or
/// this value again.
pub const KEPT_LATER: &str = "?";

/// Ours, not CDI's: path that returns the state of an upload server as JSON.
pub const STATUS: &str = "/v1beta1/status";

/// The name in the certificate that an upload server requires of its clients.
pub const CLIENT_NAME: &str = "client.upload-server.cdi.kubevirt.io";

/// Header with the content type of an upload: [`DEVICE_CLONE`] or [`FILES_CLONE`]. Without it the
/// upload is an image.
pub const CONTENT_HEADER: &str = "x-cdi-content-type";

/// The upload is the content of a volume's block device.
pub const DEVICE_CLONE: &str = "blockdevice-clone";

/// The upload is a tar archive of a volume's files.
pub const FILES_CLONE: &str = "filesystem-clone";

/// Ours, not CDI's. In a HEAD request and its response, this header lists the clone encodings that
/// are supported in addition to CDI's encoding. In an upload it names the encoding in use. CDI's
/// own programs never send it.
pub const ENCODING_HEADER: &str = "x-cdi-workers-clone";

/// The clone encoding that our programs prefer: zstd frames, with a checksum of the stream in
/// [`CHECKSUM_HEADER`].
pub const ZSTD: &str = "zstd";

/// Ours, not CDI's: checksum of an upload or a clone, sent as a header or as an announced trailer.
pub const CHECKSUM_HEADER: &str = "x-cdi-checksum";

/// Ours, not CDI's: response header that describes the result of a resumable upload in one line.
/// It is part of the response that completes the upload.
pub const RESULT_HEADER: &str = "x-cdi-result";

/// Ours, not CDI's: default port of `cdi-cloner serve`.
pub const READER_PORT: u16 = 8100;

/// Ours, not CDI's: path prefix of a `cdi-cloner serve` pod, followed by an offset. The response is
/// a stream of zstd frames with the disk from that offset to its end.
pub const SERVED_DISK: &str = "/disk/";

/// Ours, not CDI's: path prefix of a `cdi-cloner serve` pod, followed by an offset. The response
/// lists checksums of the disk before that offset, one per line
/// (`stream::prefix_crc::PrefixCrc`), the last one at the offset.
pub const SERVED_PREFIXES: &str = "/prefixes/";

/// Ours, not CDI's: response header of a `cdi-cloner serve` pod with the size of the disk in bytes.
pub const DISK_BYTES_HEADER: &str = "x-cdi-disk-bytes";

/// Returns the id of the resumable upload at `path`. Only letters, digits, `-` and `_` are
/// accepted, so that a client cannot choose an id that leads to another path.
pub fn resumable_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix(RESUMABLE)?.strip_prefix('/')?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    ((1..=MAX_RESUMABLE_ID).contains(&id.len()) && id.bytes().all(is_plain)).then_some(id)
}

/// Returns the part of `path` after the version prefix, or `None` if the version is unknown.
pub fn strip_version(path: &str) -> Option<&str> {
    VERSIONS.iter().find_map(|version| path.strip_prefix(version))
}
