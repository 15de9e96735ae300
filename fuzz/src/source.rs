//! Readers of `sources`, of what servers send.

pub(crate) mod messages;
pub(crate) mod retry;
pub(crate) mod xml;

/// HTTP.
pub mod http {
    mod identity;

    use std::ops::Range;

    use ::http::HeaderMap;

    use self::identity::ContentRange;

    /// The part that follows and the length of the whole, if `Content-Range` can be read.
    pub fn content_range(headers: &HeaderMap) -> Option<(Option<Range<u64>>, Option<u64>)> {
        ContentRange::from_headers(headers).map(|ContentRange { part, total }| (part, total))
    }
}

/// oVirt.
pub mod imageio {
    mod extents;

    use std::ops::Range;

    use datapath::error::SourceError;

    /// The extents of a disk, and whether each reads as zeros.
    pub fn extents(text: &[u8]) -> Result<Vec<(Range<u64>, bool)>, SourceError> {
        let extents = extents::parse_extents(text)?;
        let runs = extents.iter().map(|extent| (extent.start..extent.end_offset(), extent.zero));
        Ok(runs.collect())
    }
}

/// Network block devices.
pub mod nbd {
    mod agreement;
    mod assembly;
    mod connection;
    mod extents;
    mod stream;
    mod wire;

    /// Where `stream` connects to. The real one reads URLs, which is another build of half a minute.
    mod uri {
        use std::path::PathBuf;

        pub(super) enum NbdAddress {
            Tcp { host: String, port: u16 },
            Unix(PathBuf),
        }
    }

    use std::ops::Range;
    use std::time::Duration;

    use datapath::error::SourceError;

    use self::agreement::NbdAgreement;
    use self::connection::{NbdConnection, ReplyEvent};
    use self::wire::{BlockSizes, MessageFields, OptionReply, ServerError};
    use crate::Script;
    use crate::retry::AttemptError;

    /// Longest wait for the server, which never lets wait here.
    const LIMIT: Duration = Duration::from_secs(10);

    /// What came of a request.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Reply {
        /// Bytes at an offset.
        Data(u64, Vec<u8>),
        /// Ends of extents from an offset on, and whether each reads as zeros.
        Extents(u64, Vec<(u64, bool)>),
        /// A sentence.
        Refused(String),
    }

    /// Asks the server behind `stream` for the status of `asked` if that is to be had, then for the bytes of `reads`, all at
    /// once: the replies in the order of the requests, and why there are no more of them.
    pub async fn ask(
        stream: Script,
        is_structured: bool,
        asked: Range<u64>,
        reads: &[Range<u64>],
    ) -> (Vec<Reply>, Result<(), SourceError>) {
        let mut replies = Vec::new();
        let agreement = NbdAgreement {
            size: asked.end,
            multi_conn: false,
            block_sizes: BlockSizes::default(),
            structured: is_structured,
            allocation: is_structured.then_some(7),
        };
        let connection = NbdConnection::new(Box::new(stream), agreement);
        let outcome = talk(connection, asked, reads, &mut replies).await;
        (replies, outcome.map_err(AttemptError::into_error))
    }

    async fn talk(
        mut connection: NbdConnection,
        asked: Range<u64>,
        reads: &[Range<u64>],
        replies: &mut Vec<Reply>,
    ) -> Result<(), AttemptError> {
        let mut left = reads.len();
        if connection.agreement().allocation.is_some() {
            connection.request_block_status(asked, LIMIT).await?;
            left += 1;
        }
        for range in reads {
            connection.request_read(range.clone(), LIMIT).await?;
        }
        while left > 0 {
            match connection.next_event(LIMIT).await? {
                ReplyEvent::Data(offset, bytes) => {
                    replies.push(Reply::Data(offset, bytes.to_vec()));
                    continue;
                }
                ReplyEvent::ReadDone => {}
                ReplyEvent::Status(from, extents) => {
                    let extents = extents.iter().map(|extent| (extent.end, extent.zero));
                    replies.push(Reply::Extents(from, extents.collect()));
                }
                ReplyEvent::Refused { what, error } => {
                    replies.push(Reply::Refused(format!("{what}: {error}")))
                }
            }
            left -= 1;
        }
        Ok(())
    }

    /// Sentences about `bytes` as each kind of message of the handshake, which they are not; what they are lies within the limits.
    pub fn handshake(bytes: &[u8]) -> Vec<String> {
        let mut sentences = Vec::new();
        if let Some(head) = bytes.first_chunk::<{ OptionReply::BYTES }>()
            && let Err(violation) = OptionReply::parse(wire::OPT_GO, head)
        {
            sentences.push(violation.0);
        }
        match wire::parse_export(MessageFields(bytes)) {
            Ok((size, _)) => assert!(i64::try_from(size).is_ok()),
            Err(violation) => sentences.push(violation.0),
        }
        match BlockSizes::parse(MessageFields(bytes)) {
            Ok(BlockSizes { minimum, maximum }) => {
                assert!(minimum.is_power_of_two() && maximum >= minimum && maximum % minimum == 0);
            }
            Err(violation) => sentences.push(violation.0),
        }
        match ServerError::parse(bytes) {
            Ok(error) => sentences.push(error.to_string()),
            Err(violation) => sentences.push(violation.0),
        }
        sentences
    }
}

/// Object stores.
pub mod objects {
    mod document;

    /// The sentence and the region in the document with which a store says no.
    pub fn store_error(body: &[u8]) -> Option<(String, String)> {
        document::StoreError::parse(body).map(|error| (error.error_message(), error.region))
    }
}

/// Registries.
pub mod registry {
    mod challenge;
    mod digest;
    mod manifest;
    mod platform;
    mod refusal;

    use ::http::HeaderMap;
    use bytes::Bytes;

    use self::challenge::AuthChallenge;
    use self::digest::OciDigest;
    use self::manifest::{ImageConfig, ParsedManifest, ServedManifest};
    use self::platform::WantedPlatforms;

    /// The paths of all that a manifest names, in a layout: of its configuration and layers, or of the one image of an index that
    /// is for `architecture`.
    pub fn manifest(
        text: &[u8],
        media_type: Option<&str>,
        architecture: &str,
    ) -> Result<Vec<String>, String> {
        let served = ServedManifest {
            digest: OciDigest::sha256_of(b"").map_err(|error| error.to_string())?,
            media_type: media_type.map(str::to_owned),
            bytes: Bytes::copy_from_slice(text),
        };
        let named = match ParsedManifest::parse(&served)? {
            ParsedManifest::Image { config, layers } => [vec![config], layers].concat(),
            ParsedManifest::Index(index) => {
                vec![WantedPlatforms::new(Some(architecture)).choose_image(&index)?.clone()]
            }
        };
        Ok(named.iter().map(|descriptor| descriptor.digest.blob_path()).collect())
    }

    /// The variables of an image's configuration.
    pub fn configuration(text: &[u8]) -> Result<Vec<String>, String> {
        ImageConfig::parse(text).map(|config| config.env_variables().to_owned())
    }

    /// A registry's own words in an error.
    pub fn refusal(body: &[u8]) -> String {
        refusal::error_summary(body)
    }

    /// The URL of the token service that an answer names.
    pub fn challenge(headers: &HeaderMap) -> Option<String> {
        match challenge::choose_challenge(headers)? {
            AuthChallenge::Basic => None,
            AuthChallenge::Bearer { realm, .. } => Some(realm),
        }
    }
}

/// vSphere.
pub mod vddk {
    mod answer;
    mod areas;

    use datapath::changes::ChangedRanges;
    use datapath::error::SourceError;
    use http::StatusCode;

    use crate::xml::XmlElement;

    /// What changed on a disk of `disk_bytes`, as its first page tells.
    pub fn changes(page: &[u8], disk_bytes: u64) -> Option<Result<ChangedRanges, SourceError>> {
        let page = XmlElement::parse(page).ok()?;
        let mut areas = areas::ChangedAreas::default();
        let added = areas.add_page(&page, 0, disk_bytes);
        Some(added.and_then(|_| areas.into_changes(disk_bytes)))
    }

    /// The name of the object that `envelope` answers with.
    pub fn object(status: StatusCode, envelope: &[u8]) -> Result<Option<String>, SourceError> {
        let response = answer::parse_response("FindByUuid", status, envelope)?;
        answer::first_child(response)
            .map(|found| answer::ManagedObjectReference::from_name("VirtualMachine", &found.text))
            .transpose()
            .map(|object| object.map(|object| object.name))
    }
}

use self::xml::{XmlElement, escape_text};

/// `document` as it was understood, written again. Names that are not plain are replaced: not all that the parser lets pass can be
/// written as it was.
pub fn document(document: &[u8]) -> Result<String, String> {
    let root = XmlElement::parse(document).map_err(|error| error.to_string())?;
    let mut text = String::new();
    write(&root, &mut text);
    Ok(text)
}

fn write(element: &XmlElement, text: &mut String) {
    let is_plain = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let name = Some(element.name.as_str()).filter(is_plain).unwrap_or("other");
    let id = element.id.as_deref().filter(is_plain);
    let id = id.map(|id| format!(" id=\"{id}\"")).unwrap_or_default();
    *text += &format!("<{name}{id}>{}", escape_text(&element.text));
    for child in &element.children {
        write(child, text);
    }
    *text += &format!("</{name}>");
}
