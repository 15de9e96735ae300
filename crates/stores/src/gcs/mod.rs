//! Google Cloud Storage, through its XML API.
//!
//! Objects are read by `HttpSource`: resumed under `If-Match` and pinned to the generation that
//! was found first. The account comes from a key file or, if the policy allows that, from the
//! machine's metadata server; otherwise requests are anonymous.

mod dialect;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fetch::Network;
use fetch::address::with_scheme;
use fetch::error::invalid_error;
use fetch::http::{header_text, redact_endpoint};
use fetch::policy::ImportPolicy;
use http::HeaderMap;
use stream::digest::{Checksum, DigestAlgorithm};
use stream::error::SourceError;
use stream::source::Source;
use url::Url;

use self::dialect::GcsDialect;
use super::objects::{ObjectOptions, encode_path, open_object, stored_object, survives_urls};

/// Default server, for addresses that do not contain an endpoint.
const GOOGLE: &str = "https://storage.googleapis.com";

/// Variable in which Google's libraries look for an emulator: a URL, or just host and port.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// Response header with the generation of the object.
const GENERATION: &str = "x-goog-generation";

/// Header with the digests of an object as it is stored: `crc32c=BASE64,md5=BASE64`, on one line
/// or two.
const HASH: &str = "x-goog-hash";

/// Header with the coding in which an object is stored. The digests cover this form.
const STORED_ENCODING: &str = "x-goog-stored-content-encoding";

/// Opens the object at `gs://BUCKET/OBJECT` or `http(s)://HOST/BUCKET/OBJECT`.
pub fn open(
    endpoint: &str,
    network: &Arc<Network>,
    options: &ObjectOptions,
) -> Result<impl Source + use<>, SourceError> {
    let place = GcsLocation::parse(endpoint, &network.policy)?;
    let what = format!("\"{}/{}\"", place.bucket, place.object);
    let dialect = Arc::new(GcsDialect::new(&place.url, network, options)?);
    let spoken = Arc::clone(&dialect) as _;
    let http = open_object("gcs", &what, place.url, spoken, network)?;
    if let Some(generation) = header_text(http.response_headers(), GENERATION) {
        dialect.pin_generation(generation);
    }
    let checksum = announced_checksum(http.response_headers(), http.content_encoding());
    Ok(stored_object(http, checksum, None, what))
}

/// The location of an object: its URL and its names.
#[derive(Debug, PartialEq, Eq)]
struct GcsLocation {
    url: Url,
    bucket: String,
    object: String,
}

impl GcsLocation {
    /// Parses an endpoint. Bucket and object are taken as they are written, without decoding, as
    /// in CDI.
    fn parse(endpoint: &str, policy: &ImportPolicy) -> Result<Self, SourceError> {
        let refused = |reason: &str| {
            let endpoint = redact_endpoint(endpoint);
            let message =
                format!("GCS Importer: unable to parse endpoint \"{endpoint}\": {reason}");
            invalid_error(message)
        };
        let (scheme, rest) =
            endpoint.split_once("://").ok_or_else(|| refused("it has no scheme"))?;
        // Unlike with S3, nothing is cut off at `?` or `#`: object names may contain both, and CDI
        // takes them as written.
        let (server, names) = match scheme {
            "gs" => {
                let emulator = policy.get_setting(EMULATOR);
                (emulator.map_or_else(|| GOOGLE.to_owned(), with_scheme), rest)
            }
            "http" | "https" => {
                let (host, names) = rest.split_once('/').unwrap_or((rest, ""));
                (format!("{scheme}://{host}"), names)
            }
            _ => return Err(refused("its scheme is not gs, http or https")),
        };
        let (bucket, object) = names.split_once('/').unwrap_or((names, ""));
        if bucket.is_empty() || object.is_empty() {
            return Err(refused("it must name a bucket and an object: BUCKET/OBJECT"));
        }
        if !survives_urls(names.as_bytes()) {
            return Err(refused(
                "a name with a segment that is \".\" or \"..\" cannot be requested over HTTP",
            ));
        }
        let mut url = Url::parse(&server).map_err(|error| refused(&error.to_string()))?;
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{}", encode_path(names.as_bytes())));
        Ok(Self { url, bucket: bucket.to_owned(), object: object.to_owned() })
    }
}

/// Returns the CRC of the bytes that are sent. The server announces the CRC of the stored bytes,
/// so it is ignored if the server has decompressed them.
fn announced_checksum(headers: &HeaderMap, encoding: Option<&str>) -> Option<Checksum> {
    if header_text(headers, STORED_ENCODING)
        .is_some_and(|stored| stored != encoding.unwrap_or("identity"))
    {
        return None;
    }
    let lines = headers.get_all(HASH).iter().filter_map(|line| line.to_str().ok());
    let mut digests = lines.flat_map(|line| line.split(',')).map(str::trim);
    let crc = digests.find_map(|digest| digest.strip_prefix("crc32c="))?;
    Checksum::from_bytes(DigestAlgorithm::Crc32c, &BASE64_STANDARD.decode(crc).ok()?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::{HeaderName, HeaderValue};

    use super::*;

    fn place(endpoint: &str, emulator: &str) -> Result<GcsLocation, SourceError> {
        let environment = HashMap::from([(EMULATOR.to_owned(), emulator.to_owned())]);
        GcsLocation::parse(endpoint, &ImportPolicy::for_pod(&environment, true))
    }

    #[test]
    fn endpoints_name_bucket_and_object_literally() {
        for (endpoint, emulator, url) in [
            ("gs://b/a/disk.img", "", "https://storage.googleapis.com/b/a/disk.img"),
            ("gs://b/a%20b+c?d#e", "localhost:9", "http://localhost:9/b/a%2520b%2Bc%3Fd%23e"),
            ("gs://b/ü", "https://emulator/base/", "https://emulator/base/b/%C3%BC"),
            ("http://host:8080/b/o", "localhost:9", "http://host:8080/b/o"),
        ] {
            assert_eq!(place(endpoint, emulator).unwrap().url.as_str(), url);
        }
        for endpoint in
            ["b/o", "gs://b", "gs://b/", "s3://b/o", "gs://b/../o", "https://user:hidden@host/b/"]
        {
            let error = place(endpoint, "").unwrap_err().to_string();
            assert!(error.starts_with("GCS Importer: unable to parse endpoint \""), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn the_crc_is_used_only_for_bytes_as_they_are_stored() {
        let read = |pairs: &[(&'static str, &'static str)], encoding| {
            let pairs = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            announced_checksum(&headers, encoding).map(|checksum| checksum.to_string())
        };
        let crc = "crc32c:e3069283";
        let one_line = [(HASH, "crc32c=4waSgw==,md5=AAAA")];
        let two_lines = [(HASH, "md5=AAAA"), (HASH, "crc32c=4waSgw==")];
        assert_eq!(read(&one_line, None).as_deref(), Some(crc));
        assert_eq!(read(&two_lines, None).as_deref(), Some(crc));
        for (stored, encoding, expected) in
            [("identity", None, Some(crc)), ("gzip", Some("gzip"), Some(crc)), ("gzip", None, None)]
        {
            let headers = [one_line[0], (STORED_ENCODING, stored)];
            assert_eq!(read(&headers, encoding).as_deref(), expected, "{stored}");
        }
        assert_eq!(read(&[(HASH, "crc32c=4waS")], None), None);
    }
}
