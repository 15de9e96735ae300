//! Location of an object: its URL, its names, and the region in which its bucket is looked for
//! first.

use fetch::error::invalid_error;
use fetch::http::redact_endpoint;
use fetch::policy::ImportPolicy;
use percent_encoding::percent_decode_str;
use stream::error::SourceError;
use url::Url;

use crate::objects::AddressingStyle;
use crate::objects::{encode_path, survives_urls};

/// The region that global endpoints belong to.
const HOME_REGION: &str = "us-east-1";

/// Longest name of a bucket, in bytes (S3 user guide, general purpose bucket naming rules).
const MAX_LABEL_BYTES: usize = 63;

/// The location of an object: its URL, its names and its region.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct S3Location {
    /// The URL, without a query except `versionId`.
    pub(super) url: Url,
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) region: String,
}

/// True for the URL of a web server.
fn is_web_address(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

impl S3Location {
    pub(super) fn parse(
        endpoint: &str,
        addressing: AddressingStyle,
        policy: &ImportPolicy,
    ) -> Result<Self, SourceError> {
        let refused = |reason: String| {
            let message =
                format!("unable to parse endpoint \"{}\": {reason}", redact_endpoint(endpoint));
            invalid_error(message)
        };
        let (scheme, rest) =
            endpoint.split_once("://").ok_or_else(|| refused("it has no scheme".to_owned()))?;
        let (rest, version) = split_version(rest);
        let (server, names) = match addressing {
            AddressingStyle::Host => {
                // Only the scheme `http` means without TLS (contract §1.11).
                let scheme = if scheme == "http" { "http" } else { "https" };
                let (host, names) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(format!("{scheme}://{host}")), names)
            }
            AddressingStyle::Bucket => {
                let server = endpoint_of(policy);
                if let Some(server) = server.as_deref().filter(|server| !is_web_address(server)) {
                    let what = "is not the URL of a server: write https://HOST:PORT";
                    return Err(invalid_error(format!(
                        "AWS_ENDPOINT_URL: {} {what}",
                        redact_endpoint(server)
                    )));
                }
                (server, rest)
            }
        };
        let (bucket, key) = names_of(names).map_err(refused)?;
        let (url, region) = match server {
            Some(server) => {
                let url = path_style(&server, &bucket, &key)
                    .map_err(|error| refused(error.to_string()))?;
                let region = region_of(&url, policy);
                (url, region)
            }
            None => {
                let region = configured_region(policy).unwrap_or_else(|| HOME_REGION.to_owned());
                let url = amazon_url(&bucket, &key, &region)
                    .map_err(|error| refused(error.to_string()))?;
                (url, region)
            }
        };
        let (url, key) = (with_version(url, version), String::from_utf8_lossy(&key).into_owned());
        Ok(Self { url, bucket, key, region })
    }

    /// Returns `bucket/key`.
    pub(super) fn object_name(&self) -> String {
        format!("{}/{}", self.bucket, self.key)
    }
}

/// Returns the URL on `server` of the object at `address`, `s3://BUCKET/KEY`, in path style, which
/// CDI's API and importers accept.
pub fn url_at(server: &Url, address: &str) -> Result<Url, SourceError> {
    let refused = |reason: String| {
        invalid_error(format!("unable to parse \"{}\": {reason}", redact_endpoint(address)))
    };
    let names = address.split_once("://").map_or(address, |(_, names)| names);
    let (names, version) = split_version(names);
    let (bucket, key) = names_of(names).map_err(refused)?;
    let url = path_style(server.as_str(), &bucket, &key);
    Ok(with_version(url.map_err(|error| refused(error.to_string()))?, version))
}

fn path_style(server: &str, bucket: &str, key: &[u8]) -> Result<Url, url::ParseError> {
    let mut url = Url::parse(server)?;
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{base}/{}/{}", encode_path(bucket.as_bytes()), encode_path(key)));
    Ok(url)
}

/// Splits `BUCKET/KEY`. Percent-encoding is decoded, and slashes around the key are ignored.
fn names_of(text: &str) -> Result<(String, Vec<u8>), String> {
    let (bucket, key) = text.trim_start_matches('/').split_once('/').unwrap_or((text, ""));
    let bucket = percent_decode_str(bucket).decode_utf8_lossy().into_owned();
    let key: Vec<u8> = percent_decode_str(key.trim_matches('/')).collect();
    if bucket.is_empty() || key.is_empty() {
        return Err("it must name a bucket and an object: BUCKET/KEY".to_owned());
    }
    if survives_urls(bucket.as_bytes()) && survives_urls(&key) {
        Ok((bucket, key))
    } else {
        Err("a name with a segment that is \".\" or \"..\" cannot be asked for over HTTP"
            .to_owned())
    }
}

/// Splits the names in an address from the version in its query. A fragment is dropped.
fn split_version(address: &str) -> (&str, Option<String>) {
    let (names, query) = address.split_once('?').unwrap_or((address, ""));
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let version = pairs.find(|(name, _)| name == "versionId");
    (names.split('#').next().unwrap_or_default(), version.map(|(_, version)| version.into_owned()))
}

fn with_version(mut url: Url, version: Option<String>) -> Url {
    if let Some(version) = version {
        url.query_pairs_mut().append_pair("versionId", &version);
    }
    url
}

/// Returns the server that the environment names, by the same variables as in the AWS SDKs.
fn endpoint_of(policy: &ImportPolicy) -> Option<String> {
    first_setting(policy, ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
}

fn configured_region(policy: &ImportPolicy) -> Option<String> {
    first_setting(policy, ["AWS_REGION", "AWS_DEFAULT_REGION"])
}

fn first_setting(policy: &ImportPolicy, names: [&str; 2]) -> Option<String> {
    names.iter().find_map(|name| policy.get_setting(name)).map(str::to_owned)
}

/// Determines the region by CDI's rule: the part between `s3.` and `.amazonaws.com`, or otherwise
/// the first label of the host. There are two exceptions, where that rule could only fail:
/// Amazon's global endpoint, and an environment that names the region.
fn region_of(url: &Url, policy: &ImportPolicy) -> String {
    let host = url.host_str().unwrap_or_default();
    if let Some(labels) = amazon_labels(host) {
        let region = labels.region.filter(|region| !region.is_empty());
        return region.unwrap_or_else(|| HOME_REGION.to_owned());
    }
    let first_label = || host.split('.').next().unwrap_or_default().to_owned();
    configured_region(policy).unwrap_or_else(first_label)
}

/// The parts of a host of Amazon's S3, `[BUCKET.]s3[.dualstack][.REGION].amazonaws.com[.cn]`.
struct AmazonLabels {
    bucket: Option<String>,
    is_dual_stack: bool,
    region: Option<String>,
}

fn amazon_labels(host: &str) -> Option<AmazonLabels> {
    let host = host.strip_suffix(".cn").unwrap_or(host);
    let labels: Vec<&str> = host.strip_suffix(".amazonaws.com")?.split('.').collect();
    let service = labels.iter().rposition(|label| *label == "s3" || label.starts_with("s3-"))?;
    let (before, after) = labels.split_at(service);
    // The older form: s3-eu-west-1.amazonaws.com.
    let old = after.first().and_then(|label| label.strip_prefix("s3-"));
    let new = after.get(1..).unwrap_or_default();
    Some(AmazonLabels {
        bucket: (!before.is_empty()).then(|| before.join(".")),
        is_dual_stack: new.first() == Some(&"dualstack"),
        region: new.last().copied().or(old).filter(|r| *r != "dualstack").map(str::to_owned),
    })
}

/// Returns the URL of the same object in `region`; `None` if the address does not depend on the
/// region.
pub(super) fn relocate_url(url: &Url, region: &str) -> Option<Url> {
    let labels = amazon_labels(url.host_str()?)?;
    let bucket = labels.bucket.map(|bucket| format!("{bucket}.")).unwrap_or_default();
    let stack = if labels.is_dual_stack { "dualstack." } else { "" };
    let mut relocated = url.clone();
    relocated
        .set_host(Some(&format!("{bucket}s3.{stack}{region}.{}", region_domain(region))))
        .ok()?;
    Some(relocated)
}

/// Returns the domain of the services of a region.
pub(super) fn region_domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// Returns the URL of an object at Amazon. It is virtual-hosted, which Amazon prefers, if the name
/// of the bucket can be a host label that Amazon's certificate covers. Otherwise it is path-style.
fn amazon_url(bucket: &str, key: &[u8], region: &str) -> Result<Url, url::ParseError> {
    let is_label = bucket.len() <= MAX_LABEL_BYTES
        && bucket
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let (domain, key) = (region_domain(region), encode_path(key));
    if is_label {
        Url::parse(&format!("https://{bucket}.s3.{region}.{domain}/{key}"))
    } else {
        let bucket = encode_path(bucket.as_bytes());
        Url::parse(&format!("https://s3.{region}.{domain}/{bucket}/{key}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use stream::error::SourceErrorKind;

    use super::*;

    fn place(
        endpoint: &str,
        addressing: AddressingStyle,
        environment: &[(&str, &str)],
    ) -> Result<S3Location, SourceError> {
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let policy = ImportPolicy::for_pod(&environment.collect::<HashMap<_, _>>(), true);
        S3Location::parse(endpoint, addressing, &policy)
    }

    #[test]
    fn endpoints_of_cdi_are_parsed_to_host_bucket_and_key() {
        for (endpoint, url, name, region) in [
            (
                "http://minio.ns:9000/images/disk.img",
                "http://minio.ns:9000/images/disk.img",
                "images/disk.img",
                "minio",
            ),
            (
                "s3://s3.eu-west-1.amazonaws.com/images/a/b.img/",
                "https://s3.eu-west-1.amazonaws.com/images/a/b.img",
                "images/a/b.img",
                "eu-west-1",
            ),
            (
                "https://s3.amazonaws.com/images/a%20b+c?versionId=x%2By&secret=1#top",
                "https://s3.amazonaws.com/images/a%20b%2Bc?versionId=x%2By",
                "images/a b+c",
                "us-east-1",
            ),
            (
                "https://images.s3.dualstack.eu-west-1.amazonaws.com/a/ü~",
                "https://images.s3.dualstack.eu-west-1.amazonaws.com/a/%C3%BC~",
                "a/ü~",
                "eu-west-1",
            ),
            ("http://[::1]:9000/b/k", "http://[::1]:9000/b/k", "b/k", "[::1]"),
        ] {
            let place = place(endpoint, AddressingStyle::Host, &[]).unwrap();
            assert_eq!(place.url.as_str(), url, "{endpoint}");
            assert_eq!(
                (place.object_name().as_str(), place.region.as_str()),
                (name, region),
                "{endpoint}"
            );
        }
    }

    #[test]
    fn a_url_for_a_server_names_the_same_object_in_a_pod() {
        for (server, address, url, name) in [
            (
                "https://s3.us-east-1.amazonaws.com",
                "s3://images/a/b.img",
                "https://s3.us-east-1.amazonaws.com/images/a/b.img",
                "images/a/b.img",
            ),
            (
                "http://minio.ns:9000",
                "s3://Im_ages/a dir/\u{fc}+100%&\\.img?versionId=x%2By&secret=1#top",
                "http://minio.ns:9000/Im_ages/a%20dir/%C3%BC%2B100%25%26%5C.img?versionId=x%2By",
                "Im_ages/a dir/\u{fc}+100%&\\.img",
            ),
            ("http://[::1]:9000/", "s3://b/a%2Bb%3F", "http://[::1]:9000/b/a%2Bb%3F", "b/a+b?"),
        ] {
            let made = url_at(&server.parse().unwrap(), address).unwrap();
            assert_eq!(made.as_str(), url);
            let read = place(url, AddressingStyle::Host, &[]).unwrap();
            assert_eq!((read.object_name().as_str(), read.url.as_str()), (name, url));
        }
        for address in ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://b/a/../c"] {
            let refused = url_at(&"https://h".parse().unwrap(), address).unwrap_err();
            assert_eq!(refused.kind(), SourceErrorKind::Invalid, "{address}");
        }
    }

    #[test]
    fn an_s3_url_is_parsed_to_bucket_and_key() {
        let minio = [("AWS_ENDPOINT_URL", "http://minio:9000/base/"), ("AWS_REGION", "here")];
        for (text, environment, url, region) in [
            ("s3://b/k", &[][..], "https://b.s3.us-east-1.amazonaws.com/k", "us-east-1"),
            (
                "s3://b.c/k",
                &[("AWS_DEFAULT_REGION", "cn-north-1")],
                "https://s3.cn-north-1.amazonaws.com.cn/b.c/k",
                "cn-north-1",
            ),
            ("s3://B/k", &minio, "http://minio:9000/base/B/k", "here"),
        ] {
            let place = place(text, AddressingStyle::Bucket, environment).unwrap();
            assert_eq!((place.url.as_str(), place.region.as_str()), (url, region), "{text}");
        }
    }

    #[test]
    fn urls_without_an_object_are_refused_without_printing_secrets() {
        for endpoint in [
            "bucket/key",
            "https://host",
            "https://user:hidden@host/bucket/",
            "https://host//",
            "https://host/bucket/a/../b?hidden",
            "https://host/bucket/a/%2E%2e",
            "https://ho st/bucket/key#hidden",
        ] {
            let error = place(endpoint, AddressingStyle::Host, &[]).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Invalid, "{endpoint}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }

    #[test]
    fn only_at_amazon_a_region_has_another_host() {
        let relocate =
            |url: &str| relocate_url(&Url::parse(url).unwrap(), "cn-north-1").map(String::from);
        for (url, expected) in [
            (
                "https://b.s3.amazonaws.com/k?versionId=1",
                "https://b.s3.cn-north-1.amazonaws.com.cn/k?versionId=1",
            ),
            (
                "https://s3-us-west-2.amazonaws.com/b/k",
                "https://s3.cn-north-1.amazonaws.com.cn/b/k",
            ),
            (
                "https://a.b.s3.dualstack.us-west-2.amazonaws.com/k",
                "https://a.b.s3.dualstack.cn-north-1.amazonaws.com.cn/k",
            ),
        ] {
            assert_eq!(relocate(url).as_deref(), Some(expected));
        }
        for elsewhere in ["http://minio:9000/b/k", "https://s3.amazonaws.com.evil.example/b/k"] {
            assert_eq!(relocate(elsewhere), None);
        }
    }
}
