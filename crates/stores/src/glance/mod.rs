//! Images of an OpenStack cloud. Keystone, the identity service, authenticates the user and
//! returns the address of Glance. Glance, the image service, sends the bytes.
//!
//! ```text
//!  GlanceAccess ─► GlanceSession (Keystone) ─► token, catalogue ─► GlanceImage (Glance)
//!                    ▲                                               │
//!                    │ renews the token, once for each               ▼
//!                    └ request that is answered with 401 ── HttpSource: the bytes, verified
//! ```

mod access;
mod catalog;
mod image;
mod session;
mod values;

use std::sync::Arc;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{ContinuityProof, HttpConfig, HttpSource, parse_endpoint};
use fetch::messages::plain_line;
use stream::error::SourceError;
use stream::source::Source;
use url::Url;

pub use self::access::GlanceAccess;
use self::session::GlanceSession;
pub use self::values::NameStyle;
use super::objects::stored_object;

/// An image of a cloud, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlanceOptions {
    /// The identity service's URL for tokens: `https://HOST:5000/v3/auth/tokens`.
    tokens: Url,
    image_id: String,
    access: GlanceAccess,
}

impl GlanceOptions {
    /// Describes the image `image_id` of the cloud whose identity service is at `endpoint`, with
    /// or without `/v3`.
    pub fn new(endpoint: &str, image_id: &str, access: GlanceAccess) -> Result<Self, SourceError> {
        Self::from_url(parse_endpoint(endpoint)?, image_id, access)
    }

    /// Parses an address `glance+https://HOST:5000/v3?image=ID`.
    pub fn parse(address: &str, access: GlanceAccess) -> Result<Self, SourceError> {
        let unusable = || {
            invalid_error(
                "an OpenStack image is given as glance+https://IDENTITY-SERVICE:5000/v3?image=ID",
            )
        };
        let endpoint = address.split_once('+').ok_or_else(unusable)?.1;
        let mut url = Url::parse(endpoint).map_err(|_| unusable())?;
        let mut query = url.query_pairs().into_owned();
        let image_id = match (query.next(), query.next()) {
            (Some((name, id)), None) if name == "image" => id,
            _ => return Err(unusable()),
        };
        url.set_query(None);
        Self::from_url(url, &image_id, access)
    }

    fn from_url(mut url: Url, image_id: &str, access: GlanceAccess) -> Result<Self, SourceError> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid_error(
                "the URL of an identity service must not contain a user or a password: give them separately",
            ));
        }
        // As path segments, these values would lead to another resource.
        if matches!(image_id, "" | "." | "..") {
            return Err(invalid_error("the id of the OpenStack image is missing"));
        }
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self {
            tokens: api_url(&url, "v3", &["auth", "tokens"]),
            image_id: image_id.to_owned(),
            access,
        })
    }

    /// Returns the URL of the identity service.
    pub fn identity_url(&self) -> &Url {
        &self.tokens
    }
}

/// Returns the URL of `path` below `base`, which may already contain the version of its API.
fn api_url(base: &Url, version: &str, path: &[&str]) -> Url {
    let mut url = base.clone();
    let is_versioned = base.path().trim_end_matches('/').ends_with(&format!("/{version}"));
    // This fails only for URLs that cannot be a base; HTTP URLs always can.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        segments.extend((!is_versioned).then_some(version));
        segments.extend(path);
    }
    url
}

/// Logs in, looks up the image and opens its bytes. Blocks.
pub fn open(
    options: &GlanceOptions,
    network: &Arc<Network>,
) -> Result<impl Source + use<>, SourceError> {
    let what = format!("OpenStack image {}", plain_line(&options.image_id));
    open_as(&what, options, network).map_err(|error| error.in_context(&what))
}

fn open_as(
    what: &str,
    options: &GlanceOptions,
    network: &Arc<Network>,
) -> Result<impl Source + use<>, SourceError> {
    let session = GlanceSession::new(options.tokens.clone(), options.access.clone(), network)?;
    let path = ["images", &options.image_id, "file"];
    let (image, url) = network.block_on(async {
        let service = session.log_in().await?;
        let image = session.fetch_image(api_url(&service, "v2", &path[..2])).await?;
        Ok((image, api_url(&service, "v2", &path)))
    })?;
    image.check_status()?;
    let checksum = image.expected_checksum()?;
    if checksum.is_none() {
        tracing::warn!("{what} has no supported hash: it is not verified");
    }
    let config = HttpConfig {
        dialect: Some(Arc::new(session)),
        name: Some(what.to_owned()),
        is_checked: network.is_checked || checksum.is_some(),
        // Glance sends no validator. It never changes the bytes that it stores, but some images
        // are stored elsewhere; only the hash proves that their bytes are unchanged.
        continuity: match checksum {
            Some(_) => ContinuityProof::Immutable,
            None => ContinuityProof::default(),
        },
        ..HttpConfig::from_url(url, network)
    };
    let http = HttpSource::open_after_login(config)?;
    image.check_length(http.total_bytes())?;
    Ok(stored_object(http, checksum, image.stated_disk(), what.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use program::env::EnvReader;

    use super::*;

    fn access() -> GlanceAccess {
        let values = HashMap::from([("token".to_owned(), "t".to_owned())]);
        GlanceAccess::from_env(&mut EnvReader::new(&values), NameStyle::Secret).unwrap()
    }

    #[test]
    fn an_identity_service_may_be_given_with_or_without_its_version() {
        for (endpoint, tokens) in [
            ("https://h:5000", "https://h:5000/v3/auth/tokens"),
            ("https://h:5000/v3/", "https://h:5000/v3/auth/tokens"),
            ("http://h/identity/v3?x#y", "http://h/identity/v3/auth/tokens"),
            ("http://h/identity/", "http://h/identity/v3/auth/tokens"),
        ] {
            let options = GlanceOptions::new(endpoint, "1", access()).unwrap();
            assert_eq!(options.identity_url().as_str(), tokens);
        }
        for (endpoint, id) in
            [("ftp://h", "1"), ("h:5000", "1"), ("https://u:hidden@h", "1"), ("https://h", "..")]
        {
            let error = GlanceOptions::new(endpoint, id, access()).unwrap_err().to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn an_id_becomes_a_single_path_segment() {
        let service = Url::parse("https://h/image").unwrap();
        let url = api_url(&service, "v2", &["images", "../a/b?c#d", "file"]);
        assert_eq!(url.as_str(), "https://h/image/v2/images/..%2Fa%2Fb%3Fc%23d/file");
    }

    #[test]
    fn an_address_must_name_cloud_and_image() {
        let options =
            GlanceOptions::parse("glance+http://h:5000/v3?image=a%20b", access()).unwrap();
        assert_eq!(options.image_id, "a b");
        for address in
            ["glance+http://h", "glance+http://?image=1", "glance+http://h?image=1&image=2"]
        {
            let error = GlanceOptions::parse(address, access()).unwrap_err().to_string();
            assert!(error.starts_with("an OpenStack image is given as glance+https://"), "{error}");
        }
    }
}
