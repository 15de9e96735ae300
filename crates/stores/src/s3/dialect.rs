//! The dialect of S3: signatures, regions, versions, and the meaning of its refusals.

use std::error::Error;
use std::sync::OnceLock;

use async_trait::async_trait;
use fetch::http::{RefusalVerdict, RefusedRequest, ServerDialect, header_text};
use fetch::policy::CloudProvider;
use http::{HeaderName, HeaderValue, header};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use parking_lot::RwLock;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::keys::AccessKeys;
use super::place::relocate_url;
use crate::objects::{StoreError, describe_refusal};

/// Header that requests the checksums that S3 keeps. S3 sends them for whole objects only.
const CHECKSUM_MODE: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"));

/// Header with the session token of keys that expire.
const TOKEN: &str = "x-amz-security-token";

/// Header in which S3 names the region of a bucket.
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// Longest name of a region that is accepted; the longest one so far has 14 characters.
const MAX_REGION_BYTES: usize = 32;

/// Error codes for expired keys (S3 API reference, list of error codes).
const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"];

/// Error codes of transient failures, which the status does not always show.
const PASSING: [&str; 6] = [
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
];

pub(super) struct S3Dialect {
    keys: AccessKeys,
    region: RwLock<String>,
    /// The version that was found first. All later requests are restricted to it.
    version: OnceLock<String>,
}

impl S3Dialect {
    pub(super) fn new(keys: AccessKeys, region: String) -> Self {
        Self { keys, region: RwLock::new(region), version: OnceLock::new() }
    }

    /// Restricts all later requests to this version.
    pub(super) fn pin_version(&self, version: &str) {
        self.version.get_or_init(|| version.to_owned());
    }

    fn region(&self) -> String {
        self.region.read().clone()
    }

    /// Returns the region that the bucket is in according to this response, if requests were
    /// signed for another one.
    fn other_region(
        &self,
        refusal: &RefusedRequest<'_>,
        error: Option<&StoreError>,
    ) -> Option<String> {
        let is_about_regions = refusal.status.is_redirection()
            || error.is_some_and(|error| {
                let code = error.code.as_str();
                matches!(
                    code,
                    "AuthorizationHeaderMalformed"
                        | "PermanentRedirect"
                        | "IllegalLocationConstraintException"
                )
            });
        let region = header_text(refusal.headers, BUCKET_REGION)
            .or(error.map(|error| error.region.as_str()))?;
        let is_region = (1..=MAX_REGION_BYTES).contains(&region.len())
            && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_about_regions && is_region && region != self.region()).then(|| region.to_owned())
    }
}

fn is_passing(refusal: &RefusedRequest<'_>, error: &StoreError) -> bool {
    let status = refusal.status.as_u16();
    status >= 500 || matches!(status, 408 | 429) || PASSING.contains(&error.code.as_str())
}

/// Signs the URL and the S3 headers of a request.
fn sign_request(
    request: &mut reqwest::Request,
    key: &AwsCredential,
    region: &str,
) -> Result<(), SourceError> {
    let unusable = |cause: Box<dyn Error + Send + Sync>| {
        SourceError::with_context(SourceErrorKind::Invalid, "cannot sign the request", cause)
    };
    let mut signed: HttpRequest = http::Request::builder()
        .method(request.method())
        .uri(request.url().as_str())
        .body(HttpRequestBody::empty())
        .map_err(|error| unusable(error.into()))?;
    // Proxies may change the other headers, and S3 would then compute a different signature.
    let amazon = request.headers().iter().filter(|(name, _)| name.as_str().starts_with("x-amz-"));
    signed.headers_mut().extend(amazon.map(|(name, value)| (name.clone(), value.clone())));
    AwsAuthorizer::new(key, "s3", region)
        .try_authorize(&mut signed, None)
        .map_err(|error| unusable(error.into()))?;
    for (name, value) in signed.headers() {
        let mut value = value.clone();
        value.set_sensitive(name == header::AUTHORIZATION || name == TOKEN);
        request.headers_mut().insert(name, value);
    }
    Ok(())
}

#[async_trait]
impl ServerDialect for S3Dialect {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        let url = request.url_mut();
        if let Some(version) = self.version.get()
            && !url.query_pairs().any(|(name, _)| name == "versionId")
        {
            url.query_pairs_mut().append_pair("versionId", version);
        }
        if !request.headers().contains_key(header::RANGE) {
            let (name, value) = CHECKSUM_MODE;
            request.headers_mut().insert(name, value);
        }
        match self.keys.current_key(request.url()).await? {
            Some(key) => sign_request(request, &key, &self.region()),
            None => Ok(()),
        }
    }

    fn is_same_service(&self, to: &Url) -> bool {
        CloudProvider::Amazon.owns_url(to)
    }

    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict {
        let error = StoreError::parse(refusal.body);
        let code = error.as_ref().map_or("", |error| error.code.as_str());
        if let Some(region) = self.other_region(&refusal, error.as_ref()) {
            tracing::info!("the bucket is in region {region}");
            let elsewhere = relocate_url(refusal.url, &region);
            *self.region.write() = region;
            return RefusalVerdict::Again(elsewhere);
        }
        let is_refused_to_nobody = refusal.is_about_who_asks()
            && matches!(self.keys.current_key(refusal.url).await, Ok(None));
        // No other refusal renews the keys: new keys of the same identity have the same
        // permissions as the current ones.
        if (EXPIRED.contains(&code) || is_refused_to_nobody) && self.keys.renew_keys().await {
            return RefusalVerdict::Again(None);
        }
        let advice = self.keys.withheld_reason().filter(|_| is_refused_to_nobody);
        let transient = error.as_ref().is_some_and(|error| is_passing(&refusal, error));
        describe_refusal(refusal.status, error.as_ref(), advice, transient)
    }
}
