//! An image in a registry (OCI distribution specification 1.1, "Pull").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::Network;
use fetch::http::{
    AgentResponse, ContinuityProof, ExtraHeader, HttpAgent, HttpConfig, HttpSource, accept_answer,
    header_text,
};
use fetch::retry::AttemptError;
use fetch::whole::read_whole;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use stream::error::{SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};
use url::Url;

use super::digest::OciDigest;
use super::manifest::{ACCEPTED, MAX_MANIFEST_BYTES, OCI_INDEX, OciDescriptor, ServedManifest};
use super::reference::{ImageReference, ImageVersion};
use super::referrers::{list_referrers, next_page, read_tagged_referrers};
use super::refusal::error_summary;
use super::session::RegistrySession;
use super::store::{ImageStore, ReferrersPage};
use super::{CONNECT_AGENT, USER_AGENT};

/// Longest response to a ping, in bytes. Its body is used only for errors.
const MAX_PING_BYTES: usize = 64 << 10;

/// Limits of the pauses between attempts. Registries that count pulls expect these.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A registry that has answered a ping.
pub(super) struct RemoteRegistry {
    /// Network settings with the pauses that registries expect.
    network: Arc<Network>,
    reference: ImageReference,
    /// Base URL of the API: `https://host/v2/`.
    base: Url,
    session: Arc<RegistrySession>,
}

impl RemoteRegistry {
    /// Pings the registry, to check that it is there and to find out how it authenticates clients.
    pub(super) fn connect(
        reference: ImageReference,
        network: &Arc<Network>,
    ) -> Result<Self, SourceError> {
        let agent = HttpAgent::new(network, CONNECT_AGENT)?;
        let answer = network.block_on(ping_registry(&agent, reference.api_host(), network))?;
        let session = RegistrySession::new(
            agent,
            Arc::clone(network),
            &reference.repository,
            answer.url.clone(),
        );
        match answer.status {
            StatusCode::OK => {}
            // The redirect only says that the registry is elsewhere; each later request finds out
            // where.
            status if status.is_redirection() => {}
            StatusCode::UNAUTHORIZED => {
                network.handle.block_on(session.handle_challenge(&answer.headers));
            }
            status => {
                let kind = SourceErrorKind::Status(status.as_u16());
                let (host, (words, advice)) = (reference.api_host(), error_summary(&answer.body));
                let message = format!("pinging container registry {host}: {status}{words}");
                return Err(SourceError::new(kind, message).with_advice(advice));
            }
        }
        Ok(Self {
            network: network.clone_with(|network| {
                network.retry_policy.first_delay = FIRST_DELAY;
                network.retry_policy.max_delay = MAX_DELAY;
            }),
            base: answer.url,
            session: Arc::new(session),
            reference,
        })
    }

    /// Returns the URL of a path below the repository.
    fn url_of(&self, path: &str) -> Result<Url, SourceError> {
        let url = self.base.join(&format!("{}/{path}", self.reference.repository));
        url.map_err(|error| SourceError::from_cause(SourceErrorKind::Invalid, error))
    }

    /// Sends a GET for a URL of the registry. It may redirect to the server that has its blobs.
    /// `is_checked` says that the digest is known and verified.
    fn open_url(
        &self,
        what: &str,
        url: Url,
        headers: Vec<ExtraHeader>,
        is_checked: bool,
    ) -> Result<HttpSource, SourceError> {
        // Registries know CDI by this user agent. `user_agent` below is the one that proxies see
        // in CONNECT.
        let agent =
            ExtraHeader { name: header::USER_AGENT, value: HeaderValue::from_static(USER_AGENT) };
        let config = HttpConfig {
            user_agent: CONNECT_AGENT.to_owned(),
            headers: headers.into_iter().chain([agent]).collect(),
            dialect: Some(Arc::clone(&self.session) as _),
            // Blobs, and manifests below an index, are requested by digest, which proves more than
            // any validator.
            continuity: ContinuityProof::Immutable,
            is_checked,
            name: Some(what.to_owned()),
            ..HttpConfig::from_url(url, &self.network)
        };
        let source = HttpSource::open(config).map_err(|error| error.in_context(what))?;
        self.network.handle.block_on(self.session.mark_accepted());
        Ok(source)
    }

    fn manifest_of(&self, version: &ImageVersion) -> Result<ServedManifest, SourceError> {
        let ImageReference { repository, .. } = &self.reference;
        let what =
            format!("reading manifest {version} in {}/{repository}", self.reference.api_host());
        let is_checked = matches!(version, ImageVersion::Digest(_));
        let url = self.url_of(&format!("manifests/{version}"))?;
        let (source, bytes) = self.read_url(&what, url, &ACCEPTED, is_checked)?;
        // For a tag this is the only digest that is not computed from the bytes themselves. A
        // registry need not send it.
        if let Some(announced) = announced_digest(source.response_headers()) {
            announced.verify_bytes(&bytes, &what)?;
        }
        let digest = match version {
            ImageVersion::Digest(digest) => digest.clone(),
            ImageVersion::Tag(_) => OciDigest::sha256_of(&bytes)?,
        };
        digest.verify_bytes(&bytes, &what)?;
        Ok(ServedManifest { digest, media_type: source.content_type().map(media_type), bytes })
    }

    /// Reads a document of these media types.
    fn read_url(
        &self,
        what: &str,
        url: Url,
        accepted: &[&'static str],
        is_checked: bool,
    ) -> Result<(HttpSource, Bytes), SourceError> {
        let accept = accepted.iter().map(|media_type| ExtraHeader {
            name: header::ACCEPT,
            value: HeaderValue::from_static(media_type),
        });
        let source = self.open_url(what, url, accept.collect(), is_checked)?;
        let bytes = read_whole(&mut *source.open_body()?, MAX_MANIFEST_BYTES, what)?;
        Ok((source, bytes))
    }
}

impl ImageStore for RemoteRegistry {
    fn image_name(&self) -> String {
        format!("docker://{}", self.reference)
    }

    fn read_root(&self) -> Result<ServedManifest, SourceError> {
        self.manifest_of(&self.reference.version)
    }

    fn read_manifest(&self, descriptor: &OciDescriptor) -> Result<ServedManifest, SourceError> {
        self.manifest_of(&ImageVersion::Digest(descriptor.digest.clone()))
    }

    fn read_tagged(&self, tag: &str) -> Result<Option<ServedManifest>, SourceError> {
        match self.manifest_of(&ImageVersion::Tag(tag.to_owned())) {
            Err(error) if error.kind() == SourceErrorKind::Status(404) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Asks the registry, or reads the index that clients maintain in registries that do not list
    /// referrers.
    fn read_referrers(
        &self,
        digest: &OciDigest,
        artifact_type: &str,
        next: Option<Url>,
    ) -> Result<ReferrersPage, SourceError> {
        let what = format!("listing the referrers of {digest}");
        let kind = utf8_percent_encode(artifact_type, NON_ALPHANUMERIC);
        let first = || self.url_of(&format!("referrers/{digest}?artifactType={kind}"));
        let is_first = next.is_none();
        let url = next.map_or_else(first, Ok)?;
        let (source, bytes) = match self.read_url(&what, url.clone(), &[OCI_INDEX], false) {
            Err(error) if is_first && error.kind() == SourceErrorKind::Status(404) => {
                return read_tagged_referrers(self, digest);
            }
            read => read?,
        };
        let served = ServedManifest { digest: digest.clone(), media_type: None, bytes };
        Ok(ReferrersPage {
            entries: list_referrers(&served, &what)?,
            next: next_page(&url, source.response_headers())?,
        })
    }

    fn open_blob(&self, blob: &OciDescriptor) -> Result<Box<dyn SourceBody>, SourceError> {
        let what = format!("reading blob {}", blob.digest);
        let url = self.url_of(&format!("blobs/{}", blob.digest))?;
        let source = self.open_url(&what, url, Vec::new(), true)?;
        match source.total_bytes() {
            Some(length) if length != blob.size => {
                let message = format!(
                    "{what}: the registry announces {length} bytes, the manifest says {}",
                    blob.size
                );
                Err(SourceError::new(SourceErrorKind::Length, message))
            }
            _ => source.open_body(),
        }
    }
}

/// Sends `GET /v2/` over TLS. If certificates are not verified and TLS does not work, sends it
/// without TLS.
async fn ping_registry(
    agent: &HttpAgent,
    host: &str,
    network: &Network,
) -> Result<AgentResponse, SourceError> {
    let what = format!("pinging container registry {host}");
    let worded = |error: SourceError| SourceError::with_context(error.kind(), &what, error);
    let [secure, plain] = ["https", "http"].map(|scheme| format!("{scheme}://{host}/v2/"));
    let greet = async |url: &str| {
        let url = Url::parse(url).map_err(|error| {
            AttemptError::Final(SourceError::from_cause(SourceErrorKind::Invalid, error))
        })?;
        let request = agent.build_request(Method::GET, url);
        agent.attempt(request.header(header::USER_AGENT, USER_AGENT), MAX_PING_BYTES).await
    };
    let mut contact = network.first_contact();
    loop {
        let greeted = match greet(&secure).await {
            // Each attempt tries both: a registry with TLS may not be ready at the first one.
            Err(failure) if network.insecure => {
                tracing::info!("{what}: {}: trying without TLS", failure.into_error());
                greet(&plain).await
            }
            greeted => greeted,
        };
        if let Some(answer) = accept_answer(greeted, &mut contact).await.map_err(worded)? {
            return Ok(answer);
        }
    }
}

/// Returns the digest of a manifest that the registry announces.
fn announced_digest(headers: &HeaderMap) -> Option<OciDigest> {
    let digest = header_text(headers, "docker-content-digest")?;
    OciDigest::try_from(digest.to_owned()).ok()
}

/// Returns a content type without its parameters.
fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_owned()
}
