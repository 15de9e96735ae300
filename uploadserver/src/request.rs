//! Parses the headers of an upload request once, before anything is decided.

use codec::decode::Codec;
use http::{HeaderMap, HeaderValue, Method};
use https::body;
use hyper::body::SizeHint;
use program::cdi::{CONTENT_HEADER, DEVICE_CLONE, ENCODING_HEADER, FILES_CLONE, ZSTD};
use stream::digest::Checksum;
use stream::options::{ChosenFormat, FORMAT_HEADER};

use crate::checksum::{self, AnnouncedChecksum};
use crate::form;
use crate::job::{BodyContent, UploadMode, UploadPlan};
use crate::refusal::RequestRefusal;
use crate::representation::{self, CodingOwner};
use crate::routes::{UploadEndpoint, WholeEndpoint};
use crate::tus;

/// The action that a request asks for.
#[derive(Debug)]
pub(crate) enum UploadRequest<'p> {
    /// Asks whether this is an upload server, and optionally which encodings of clones it
    /// supports.
    Presence { asks_encodings: bool },
    /// Sends a whole upload in this request.
    Whole(WholeUpload),
    /// Asks which features of the resumable upload protocol the server supports.
    Capabilities,
    /// Begins a resumable upload, possibly with its first bytes.
    Begin(UploadPlan, UploadPart),
    /// Appends bytes to the resumable upload with this id.
    Append(&'p str, UploadPart),
    /// Asks how many bytes of the resumable upload with this id were received.
    Progress(&'p str),
    /// Cancels the resumable upload with this id.
    End(&'p str),
}

/// A request that contains a whole upload.
#[derive(Debug)]
pub(crate) struct WholeUpload {
    pub(crate) plan: UploadPlan,
    /// The boundary of the form, if the file is sent in a form.
    pub(crate) boundary: Option<String>,
    /// The value of the content header, for the log.
    pub(crate) content_type: String,
}

/// A part of a resumable upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadPart {
    /// The offset of its first byte.
    offset: u64,
    /// The offset after its last byte, if the request states the length of the part.
    end: u64,
    /// Length of the whole upload in bytes, if the request states it.
    length: Option<u64>,
    /// The checksum of the whole upload, if the request states it.
    pub(crate) stated: Option<Checksum>,
}

impl<'p> UploadRequest<'p> {
    /// Reads a request to `endpoint`.
    pub(crate) fn read(
        endpoint: UploadEndpoint<'p>,
        method: &Method,
        headers: &HeaderMap,
        body: &SizeHint,
    ) -> Result<Self, RequestRefusal> {
        use UploadEndpoint::{Beginning, Continuation, Whole};
        match (endpoint, method) {
            (Whole(endpoint), &Method::HEAD) if endpoint.is_async => {
                Ok(Self::Presence { asks_encodings: headers.contains_key(ENCODING_HEADER) })
            }
            // `curl -T` sends PUT by default.
            (Whole(endpoint), &Method::POST | &Method::PUT) => {
                WholeUpload::read(endpoint, headers, body).map(Self::Whole)
            }
            (Beginning | Continuation(_), &Method::OPTIONS) => Ok(Self::Capabilities),
            (Beginning, &Method::POST) => {
                representation::check(headers, body, CodingOwner::Wrapped)?;
                let length = tus::length_at_creation(headers)?;
                let part = UploadPart::read(headers, body, 0, length)?;
                let plan = UploadPlan {
                    format: read_format(headers)?,
                    total: length,
                    promise: checksum::promised_of_parts(headers)?,
                    mode: UploadMode::Resumable(tus::marks(headers, length)?),
                    ..UploadPlan::default()
                };
                Ok(Self::Begin(plan, part))
            }
            (Continuation(id), &Method::PATCH) => {
                representation::check(headers, body, CodingOwner::Wrapped)?;
                let (offset, length) = tus::offset_and_length(headers)?;
                Ok(Self::Append(id, UploadPart::read(headers, body, offset, length)?))
            }
            (Continuation(id), &Method::HEAD) => {
                Ok(tus::check_version(headers).map(|()| Self::Progress(id))?)
            }
            (Continuation(id), &Method::DELETE) => {
                Ok(tus::check_version(headers).map(|()| Self::End(id))?)
            }
            _ => Err(RequestRefusal::Method(allowed_methods(endpoint))),
        }
    }
}

/// Returns the methods that a path supports, for the `Allow` header (RFC 9110 §10.2.1).
fn allowed_methods(endpoint: UploadEndpoint<'_>) -> &'static str {
    match endpoint {
        UploadEndpoint::Whole(endpoint) if endpoint.is_async => "POST, PUT, HEAD",
        UploadEndpoint::Whole(_) => "POST, PUT",
        UploadEndpoint::Beginning => "POST, OPTIONS",
        UploadEndpoint::Continuation(_) => "PATCH, HEAD, DELETE, OPTIONS",
    }
}

impl WholeUpload {
    fn read(
        endpoint: WholeEndpoint,
        headers: &HeaderMap,
        body: &SizeHint,
    ) -> Result<Self, RequestRefusal> {
        let content = read_content(endpoint, headers)?;
        let is_wrapped = endpoint.is_form || content.is_clone();
        let coded = if is_wrapped { CodingOwner::Wrapped } else { CodingOwner::Object };
        representation::check(headers, body, coded)?;
        let format = read_format(headers)?;
        if format.is_some() && content != BodyContent::Image {
            return Err(RequestRefusal::NoImage);
        }
        // Without this check, the form itself would be written to the disk: many people know only
        // curl's option `-F`.
        if !endpoint.is_form && form::form_boundary(headers).is_ok() {
            return Err(RequestRefusal::FormOnPlainPath);
        }
        if content.is_clone() && endpoint.is_async {
            return Err(RequestRefusal::AsyncClone);
        }
        let boundary = endpoint.is_form.then(|| form::form_boundary(headers));
        let boundary = boundary.transpose()?;
        let promise = checksum::promised(headers, endpoint.is_form)?;
        let is_zstd = matches!(
            content,
            BodyContent::DeviceClone(Codec::Zstd) | BodyContent::FilesClone(Codec::Zstd)
        );
        if promise == AnnouncedChecksum::None && is_zstd {
            return Err(RequestRefusal::CloneChecksum);
        }
        let content_type = headers.get(CONTENT_HEADER).map(HeaderValue::to_str);
        Ok(Self {
            content_type: content_type.and_then(Result::ok).unwrap_or_default().to_owned(),
            boundary,
            plan: UploadPlan {
                content,
                format,
                // The length of a form is larger than the length of the file in it.
                total: body.exact().filter(|_| !endpoint.is_form),
                promise,
                mode: if endpoint.is_async { UploadMode::Async } else { UploadMode::Sync },
            },
        })
    }
}

/// Reads the format that the client has chosen.
fn read_format(headers: &HeaderMap) -> Result<Option<ChosenFormat>, RequestRefusal> {
    let parse = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).parse();
    headers.get(FORMAT_HEADER).map(parse).transpose().map_err(RequestRefusal::Format)
}

fn read_content(
    endpoint: WholeEndpoint,
    headers: &HeaderMap,
) -> Result<BodyContent, RequestRefusal> {
    let value = |name| headers.get(name).map(|value: &HeaderValue| value.as_bytes());
    let encoding = value(ENCODING_HEADER);
    let wrapping = match encoding {
        None => Codec::Snappy,
        Some(encoding) if encoding == ZSTD.as_bytes() => Codec::Zstd,
        Some(other) => return Err(RequestRefusal::CloneEncoding(other.escape_ascii().to_string())),
    };
    let content = match value(CONTENT_HEADER) {
        _ if endpoint.is_archive => BodyContent::Archive,
        Some(content) if content == DEVICE_CLONE.as_bytes() => BodyContent::DeviceClone(wrapping),
        Some(content) if content == FILES_CLONE.as_bytes() => BodyContent::FilesClone(wrapping),
        // Any other value means an upload (contract §2.7).
        _ => BodyContent::Image,
    };
    if encoding.is_some() && !content.is_clone() {
        return Err(RequestRefusal::NoClone);
    }
    Ok(content)
}

impl UploadPart {
    fn read(
        headers: &HeaderMap,
        body: &SizeHint,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Self, RequestRefusal> {
        body::check_length(length.unwrap_or(0))?;
        checksum::refuse_of_part(headers)?;
        Ok(Self {
            offset,
            end: offset.saturating_add(body.lower()),
            length,
            stated: checksum::stated(headers, false)?,
        })
    }

    /// Checks that this part does not begin before `received`, the number of bytes received so
    /// far.
    pub(crate) fn check_new(&self, received: u64) -> Result<(), RequestRefusal> {
        if self.offset < received {
            return Err(RequestRefusal::WrongOffset { offset: self.offset, received });
        }
        Ok(())
    }

    /// Checks that this part continues an upload of which `received` bytes have arrived. `known`
    /// is the total number of bytes, if it is known. Returns the total that is known after this
    /// part, if any.
    pub(crate) fn check_place(
        &self,
        received: u64,
        known: Option<u64>,
    ) -> Result<Option<u64>, RequestRefusal> {
        let offset = self.offset;
        if offset != received {
            return Err(RequestRefusal::WrongOffset { offset, received });
        }
        match (known, self.length) {
            (Some(known), Some(length)) if length != known => {
                Err(RequestRefusal::OtherLength { known, length })
            }
            (_, Some(length)) if length < received => {
                Err(RequestRefusal::TooShort { length, received })
            }
            (Some(length), _) | (None, Some(length)) if length < self.end => {
                let end = self.end;
                Err(RequestRefusal::TooMuch { length, end })
            }
            (known, length) => Ok(known.or(length)),
        }
    }
}
