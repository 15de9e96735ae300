//! An image in a registry (OCI distribution specification 1.1, "Pull").

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use url::Url;

use super::digest::Digest;
use super::manifest::{ACCEPTED, Descriptor, MAX_MANIFEST_BYTES, Served};
use super::reference::{Reference, Version};
use super::refusal::words;
use super::session::Session;
use super::store::Store;
use super::{CONNECT_AGENT, USER_AGENT};
use crate::http::{Agent, Answer, Continuity, Header, HttpConfig, HttpSource, text};
use crate::network::Network;

/// The answer to "are you there" is hardly looked at.
const MAX_PING_BYTES: usize = 64 << 10;

/// Times that a request is sent, and the bounds of the pauses between: what registries that count pulls expect.
const ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A registry that has answered.
pub(super) struct Remote {
    /// With the patience that registries expect.
    network: Arc<Network>,
    reference: Reference,
    /// `https://host/v2/`
    base: Url,
    session: Arc<Session>,
}

impl Remote {
    /// Asks the registry whether it is there, and how it wants to be asked.
    pub(super) fn connect(reference: Reference, network: &Arc<Network>) -> Result<Self, SourceError> {
        let agent = Agent::new(network, CONNECT_AGENT)?;
        let answer = network.block_on(greet(&agent, reference.host(), network.insecure))?;
        let session = Session::new(
            agent,
            Arc::clone(network),
            &reference.repository,
            answer.url.clone(),
        );
        match answer.status {
            StatusCode::OK => {}
            // It says no more than that the registry is elsewhere: where, each request finds out.
            status if status.is_redirection() => {}
            StatusCode::UNAUTHORIZED => {
                network.handle.block_on(session.challenged(&answer.headers));
            }
            status => {
                let kind = SourceErrorKind::Status(status.as_u16());
                let message = format!(
                    "pinging container registry {}: {status}{}",
                    reference.host(),
                    words(&answer.body)
                );
                return Err(SourceError::new(kind, message));
            }
        }
        Ok(Self {
            network: network.but(|network| {
                network.patience.first_attempts = ATTEMPTS;
                network.patience.first_delay = FIRST_DELAY;
                network.patience.max_delay = MAX_DELAY;
            }),
            base: answer.url,
            session: Arc::new(session),
            reference,
        })
    }

    /// A GET below the repository. The answer of a registry may be a redirect to where its blobs are.
    /// `is_checked` says that its digest is known and verified.
    fn get(
        &self,
        what: &str,
        path: &str,
        headers: Vec<Header>,
        is_checked: bool,
    ) -> Result<HttpSource, SourceError> {
        // The name that the registry knows CDI by, where the rest of the engine has that of its tunnels.
        let agent = Header {
            name: header::USER_AGENT,
            value: HeaderValue::from_static(USER_AGENT),
        };
        let url = self.base.join(&format!("{}/{path}", self.reference.repository));
        let url = url.map_err(|error| SourceError::of(SourceErrorKind::Invalid, error))?;
        let config = HttpConfig {
            user_agent: CONNECT_AGENT.to_owned(),
            headers: headers.into_iter().chain([agent]).collect(),
            dialect: Some(Arc::clone(&self.session) as _),
            // Blobs, and manifests below an index, are asked for by digest, which proves more than any validator.
            continuity: Continuity::Immutable,
            is_checked,
            name: Some(what.to_owned()),
            ..HttpConfig::at(url, &self.network)
        };
        let source = HttpSource::open(config);
        let source = source.map_err(|error| match error.kind() {
            SourceErrorKind::Stopped => error,
            kind => SourceError::caused(kind, what, error),
        })?;
        self.network.handle.block_on(self.session.accepted());
        Ok(source)
    }

    fn manifest_of(&self, version: &Version) -> Result<Served, SourceError> {
        let Reference { repository, .. } = &self.reference;
        let what = format!(
            "reading manifest {version} in {}/{repository}",
            self.reference.host()
        );
        let accept = ACCEPTED.iter().map(|media_type| Header {
            name: header::ACCEPT,
            value: HeaderValue::from_static(media_type),
        });
        let is_checked = matches!(version, Version::Digest(_));
        let source = self.get(
            &what,
            &format!("manifests/{version}"),
            accept.collect(),
            is_checked,
        )?;
        let mut body = source.body()?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = body.next_chunk()? {
            if bytes.len() + chunk.len() > MAX_MANIFEST_BYTES {
                let message = format!("{what}: it has more than {MAX_MANIFEST_BYTES} bytes");
                return Err(SourceError::new(SourceErrorKind::Length, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        // Of a tag this is the only digest that is not made from the bytes themselves; a registry need not send it.
        if let Some(announced) = announced(source.headers()) {
            announced.verify(&bytes, &what)?;
        }
        let digest = match version {
            Version::Digest(digest) => digest.clone(),
            Version::Tag(_) => Digest::of(&bytes)?,
        };
        digest.verify(&bytes, &what)?;
        Ok(Served {
            digest,
            media_type: source.content_type().map(media_type),
            bytes: bytes.freeze(),
        })
    }
}

impl Store for Remote {
    fn name(&self) -> String {
        format!("docker://{}", self.reference)
    }

    fn top(&self) -> Result<Served, SourceError> {
        self.manifest_of(&self.reference.version)
    }

    fn manifest(&self, descriptor: &Descriptor) -> Result<Served, SourceError> {
        self.manifest_of(&Version::Digest(descriptor.digest.clone()))
    }

    fn open(&self, blob: &Descriptor) -> Result<Box<dyn Body>, SourceError> {
        let what = format!("reading blob {}", blob.digest);
        let source = self.get(&what, &format!("blobs/{}", blob.digest), Vec::new(), true)?;
        match source.length() {
            Some(length) if length != blob.size => {
                let message = format!(
                    "{what}: the registry announces {length} bytes, the manifest says {}",
                    blob.size
                );
                Err(SourceError::new(SourceErrorKind::Length, message))
            }
            _ => source.body(),
        }
    }
}

/// The answer to `GET /v2/`, over TLS or, if certificates do not matter and TLS does not work, without.
async fn greet(agent: &Agent, host: &str, insecure: bool) -> Result<Answer, SourceError> {
    let worded = |error: SourceError| {
        let what = format!("pinging container registry {host}");
        SourceError::caused(error.kind(), what, error)
    };
    let greeting = |scheme: &str| {
        let url = Url::parse(&format!("{scheme}://{host}/v2/"));
        let url = url.map_err(|error| worded(SourceError::of(SourceErrorKind::Invalid, error)))?;
        Ok::<_, SourceError>(move || {
            let request = agent.request(Method::GET, url.clone());
            request.header(header::USER_AGENT, USER_AGENT)
        })
    };
    let mut greet = greeting("https")?;
    if insecure {
        // Once, without patience: a registry without TLS fails it each time.
        match agent.send(greet(), MAX_PING_BYTES).await {
            Ok(answer) => return Ok(answer),
            Err(error) => tracing::info!("{}: trying without TLS", worded(error)),
        }
        greet = greeting("http")?;
    }
    let answer = agent.send_patiently(greet, MAX_PING_BYTES).await;
    answer.map_err(worded)
}

/// The digest of a manifest, as the registry announces it.
fn announced(headers: &HeaderMap) -> Option<Digest> {
    let digest = text(headers, "docker-content-digest")?;
    Digest::try_from(digest.to_owned()).ok()
}

/// A content type without its parameters.
fn media_type(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}
