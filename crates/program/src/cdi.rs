//! Names of CDI's protocol between its proxy, upload servers and cloners (contract §2.4, §2.7): paths, headers and certificates.

/// The versions of the paths of uploads. CDI's five are below both and mean the same; ours are below the first alone.
pub const VERSIONS: [&str; 2] = ["/v1beta1/", "/v1alpha1/"];

/// Uploads in one request.
pub const UPLOAD: &str = "/v1beta1/upload";

/// The beginning of every curl line that we print: a refusal is shown, and is an error of curl's too. An upload is sent as POST, which
/// every version of CDI takes, and with `-T`, which does not read the file into memory first.
pub const CURL: &str = "curl --fail-with-body -X POST -T IMAGE";

/// Uploads that are answered before they have ended. Each upload server of CDI answers a HEAD of it, whatever it is doing.
pub const UPLOAD_ASYNC: &str = "/v1beta1/upload-async";

/// Uploads of archives, in both versions.
pub const ARCHIVES: [&str; 2] = ["/v1beta1/upload-archive", "/v1alpha1/upload-archive"];

/// Ours: the place where resumable uploads begin; each has its own path below.
pub const RESUMABLE: &str = "/v1beta1/upload-resumable";

/// Longest id of a resumable upload.
const MAX_RESUMABLE_ID: usize = 64;

/// Ours: a header of a request that begins a resumable upload of a raw disk. Marks (`datapath::marks::PrefixCrc`), ascending and with
/// commas between them, of what an earlier attempt may have left.
pub const MARKS_HEADER: &str = "x-cdi-marks";

/// Ours: the header of the answer: the end of what is kept, 0 if nothing is, or [`KEPT_LATER`]. The stream is the disk without what lies
/// between its first MiB and there.
pub const KEPT_HEADER: &str = "x-cdi-kept";

/// What is kept is still looked for: a HEAD tells, or says this again.
pub const KEPT_LATER: &str = "?";

/// Ours: the state of an upload server, as JSON.
pub const STATUS: &str = "/v1beta1/status";

/// The name in the certificate that an upload server asks its clients for.
pub const CLIENT_NAME: &str = "client.upload-server.cdi.kubevirt.io";

/// The header with the content of an upload: [`DEVICE_CLONE`], [`FILES_CLONE`], or without it an image.
pub const CONTENT_HEADER: &str = "x-cdi-content-type";

/// The bytes of a volume's device.
pub const DEVICE_CLONE: &str = "blockdevice-clone";

/// A tar of a volume's files.
pub const FILES_CLONE: &str = "filesystem-clone";

/// Ours: in a HEAD and in the answer to it the encodings that a clone may come in beside CDI's, and in a request the one that it
/// comes in. No program of CDI sends it.
pub const ENCODING_HEADER: &str = "x-cdi-workers-clone";

/// The encoding of clones that our programs prefer: frames of zstd, with a checksum of the stream in [`CHECKSUM_HEADER`].
pub const ZSTD: &str = "zstd";

/// Ours: the checksum of an upload or a clone: in a header, or in a trailer that a header announces.
pub const CHECKSUM_HEADER: &str = "x-cdi-checksum";

/// Ours: in the answer that completes a resumable upload, what has become of it, in one line.
pub const RESULT_HEADER: &str = "x-cdi-result";

/// The id of the resumable upload at `path`: letters, digits, `-` and `_`, so that whoever chose
/// it, it leads nowhere else.
pub fn resumable_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix(RESUMABLE)?.strip_prefix('/')?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    ((1..=MAX_RESUMABLE_ID).contains(&id.len()) && id.bytes().all(is_plain)).then_some(id)
}

/// The part of `path` behind the version, if it has one that CDI knows.
pub fn strip_version(path: &str) -> Option<&str> {
    VERSIONS.iter().find_map(|version| path.strip_prefix(version))
}
