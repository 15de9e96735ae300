//! Keys for S3: the keys that came with the import, or an identity that was found and may be used
//! here, or no keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::policy::{
    CloudProvider, IdentityOrigin, IdentityVariables, ImportPolicy, POD_IDENTITY_URLS,
};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use url::Url;

use super::place::region_domain;
use crate::objects::{
    AgentConnector, MACHINE_LIMIT, credential_failure, retry_config, take_no_proxy,
};

/// Age up to which renewed credentials count as new: the failure of another connection has just
/// renewed them.
const JUST_NOW: Duration = Duration::from_secs(10);

/// Environment variables, and the library's names for them.
const WEB_IDENTITY: [(&str, AmazonS3ConfigKey); 3] = [
    ("AWS_WEB_IDENTITY_TOKEN_FILE", AmazonS3ConfigKey::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
];
const FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const CONTAINER: [(&str, AmazonS3ConfigKey); 3] = [
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AmazonS3ConfigKey::ContainerCredentialsRelativeUri),
    (FULL_URI, AmazonS3ConfigKey::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", AmazonS3ConfigKey::ContainerAuthorizationTokenFile),
];
const MACHINE: [(&str, AmazonS3ConfigKey); 1] =
    [("AWS_EC2_METADATA_SERVICE_ENDPOINT", AmazonS3ConfigKey::MetadataEndpoint)];

/// The origin of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOrigin {
    /// Keys that came with the import. They do not change.
    Given,
    /// Keys in environment variables.
    Variables,
    /// Keys obtained in exchange for a token of the workload (IRSA).
    WebIdentity,
    /// Keys that the platform issues to the pods of a service account (EKS Pod Identity).
    PodIdentity,
    /// Keys that the platform issues to the container (ECS).
    Container,
    /// Keys of the machine's role, which are tried when an unsigned request is refused.
    Machine,
    /// No keys: requests are never signed, whatever the server answers.
    Nobody,
}

impl KeyOrigin {
    /// Returns the place where an identity of this kind is found; `None` if keys of this kind are
    /// not found on the machine.
    fn identity_origin(self) -> Option<IdentityOrigin> {
        match self {
            Self::Given | Self::Nobody => None,
            Self::Variables => Some(IdentityOrigin::Variables),
            Self::WebIdentity => Some(IdentityOrigin::Mounted),
            Self::PodIdentity => Some(IdentityOrigin::PodIdentity),
            Self::Container | Self::Machine => Some(IdentityOrigin::Machine),
        }
    }

    /// True if the variables name an identity of this kind.
    fn is_named(self, lent: IdentityVariables<'_>) -> bool {
        let has = |name: &str| lent.get(name).is_some();
        match self {
            Self::Given | Self::Nobody => false,
            Self::Variables => has("AWS_ACCESS_KEY_ID") && has("AWS_SECRET_ACCESS_KEY"),
            Self::WebIdentity => has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN"),
            // No other address: whoever sets it would get the token.
            Self::PodIdentity => {
                lent.get(FULL_URI).is_some_and(|url| POD_IDENTITY_URLS.contains(&url))
                    && has("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            }
            Self::Container => CONTAINER.iter().take(2).any(|(name, _)| has(name)),
            Self::Machine => lent.get("AWS_EC2_METADATA_DISABLED") != Some("true"),
        }
    }
}

/// Provides keys, and renews them when they have expired.
pub(super) struct AccessKeys {
    origin: KeyOrigin,
    network: Arc<Network>,
    url: Url,
    region: String,
    current: Mutex<CurrentKeys>,
    /// The reason why no identity is used, with advice.
    withheld: Option<String>,
}

#[derive(Default)]
struct CurrentKeys {
    provider: Option<AwsCredentialProvider>,
    renewed: Option<Instant>,
}

impl AccessKeys {
    /// Takes the keys of `network`, or otherwise an identity that its policy permits for `url`.
    /// `region` is the region where tokens are exchanged.
    pub(super) fn find_keys(
        network: &Arc<Network>,
        anonymous: bool,
        url: &Url,
        region: &str,
    ) -> Result<Self, SourceError> {
        let (origin, withheld) = if anonymous {
            (KeyOrigin::Nobody, None)
        } else if network.credentials.is_some() {
            (KeyOrigin::Given, None)
        } else {
            find_identity(&network.policy, url)
        };
        let mut keys = Self {
            origin,
            network: Arc::clone(network),
            url: url.clone(),
            region: region.to_owned(),
            current: Mutex::default(),
            withheld,
        };
        // Most buckets that are read without keys are public, so the machine is asked only when
        // one is not.
        if !matches!(origin, KeyOrigin::Machine | KeyOrigin::Nobody) {
            keys.current.get_mut().provider = Some(keys.build_provider()?);
        }
        Ok(keys)
    }

    /// Returns the key to sign a request to `url` with; `None` for an anonymous request. An
    /// identity that was found may not be used for every URL that a server redirects to.
    pub(super) async fn current_key(
        &self,
        url: &Url,
    ) -> Result<Option<Arc<AwsCredential>>, SourceError> {
        if let Some(found) = self.origin.identity_origin()
            && self.network.policy.lend_identity(found, CloudProvider::Amazon, url).is_err()
        {
            return Ok(None);
        }
        let provider = self.current.lock().await.provider.clone();
        let Some(provider) = provider else { return Ok(None) };
        let key = provider.get_credential().await.map_err(credential_failure)?;
        check_key(&key)?;
        // A signature does not reveal the key, but a session token is sent as it is.
        if key.token.is_some() {
            self.network.policy.check_secret_target("the session token for S3", url)?;
        }
        Ok(Some(key))
    }

    /// Returns the reason why no identity is used, with advice.
    pub(super) fn withheld_reason(&self) -> Option<&str> {
        self.withheld.as_deref()
    }

    /// Renews the keys, because the server no longer accepts them. Returns false if new keys are
    /// not available.
    pub(super) async fn renew_keys(&self) -> bool {
        let mut current = self.current.lock().await;
        let fresh = match self.origin {
            KeyOrigin::Given | KeyOrigin::Variables | KeyOrigin::Nobody => return false,
            KeyOrigin::Machine if current.provider.is_none() && current.renewed.is_some() => {
                return false;
            }
            // Several connections may be refused at the same moment; one renewal serves all of
            // them.
            _ if current.renewed.is_some_and(|renewed| renewed.elapsed() < JUST_NOW) => {
                return true;
            }
            _ => self.build_provider(),
        };
        current.renewed = Some(Instant::now());
        let Ok(fresh) = fresh else { return false };
        if self.origin == KeyOrigin::Machine {
            let asked = tokio::time::timeout(MACHINE_LIMIT, fresh.get_credential()).await;
            if !matches!(asked, Ok(Ok(_))) {
                tracing::info!("this machine has no credentials for S3");
                return false;
            }
        }
        tracing::info!("new credentials for S3");
        current.provider = Some(fresh);
        true
    }

    /// Creates the library's credential provider.
    fn build_provider(&self) -> Result<AwsCredentialProvider, SourceError> {
        let policy = &self.network.policy;
        let lent = self.origin.identity_origin().map(|found| {
            policy
                .lend_identity(found, CloudProvider::Amazon, &self.url)
                .map_err(|advice| invalid_error(format!("no credentials: {advice}")))
        });
        let lent = lent.transpose()?;
        let builder = self.provider_builder()?;
        let builder = match (self.origin, lent) {
            (KeyOrigin::Variables, Some(lent)) => with_key(builder, &in_variables(lent))?,
            (KeyOrigin::WebIdentity, Some(lent)) => {
                let sts = self.token_exchange(lent)?;
                with_variables(builder, &WEB_IDENTITY, lent)
                    .with_config(AmazonS3ConfigKey::StsEndpoint, sts)
            }
            (KeyOrigin::PodIdentity | KeyOrigin::Container, Some(lent)) => {
                with_variables(builder, &CONTAINER, lent)
            }
            (KeyOrigin::Machine, Some(lent)) => with_variables(builder, &MACHINE, lent),
            _ => with_key(builder, &given_credential(&self.network))?,
        };
        let store = builder.build().map_err(credential_failure)?;
        Ok(Arc::clone(store.credentials()))
    }

    fn provider_builder(&self) -> Result<AmazonS3Builder, SourceError> {
        let connector = match self.origin {
            KeyOrigin::PodIdentity => {
                let network = take_no_proxy(&self.network);
                AgentConnector::new(
                    &network
                        .clone_with(|network| network.policy = network.policy.for_pod_identity()),
                )?
            }
            KeyOrigin::Container | KeyOrigin::Machine => {
                AgentConnector::new(&take_no_proxy(&self.network))?
            }
            _ => AgentConnector::new(&self.network)?,
        };
        Ok(AmazonS3Builder::new()
            // The builder requires a bucket; only its credentials are used.
            .with_bucket_name("any")
            .with_region(&self.region)
            .with_retry(retry_config())
            .with_http_connector(connector))
    }

    /// Returns the URL at which the token of the workload is exchanged. The host is checked,
    /// because the token grants everything that the workload may do.
    fn token_exchange(&self, lent: IdentityVariables<'_>) -> Result<String, SourceError> {
        let usual = || format!("https://sts.{}.{}", self.region, region_domain(&self.region));
        let text = lent.get("AWS_ENDPOINT_URL_STS").map_or_else(usual, str::to_owned);
        let url = Url::parse(&text).map_err(|error| {
            let what = "the service that exchanges tokens for keys has no usable URL";
            SourceError::with_context(SourceErrorKind::Invalid, what, error)
        })?;
        let policy = &self.network.policy;
        match policy.lend_identity(IdentityOrigin::Mounted, CloudProvider::Amazon, &url) {
            Ok(_) => policy.check_secret_target("the token of the workload", &url).map(|()| text),
            Err(_) => {
                let host = url.host_str().unwrap_or_default();
                Err(invalid_error(format!(
                    "the token of this workload is for Amazon's own hosts with verified certificates, and {host}, which \
                     AWS_ENDPOINT_URL_STS names, is none of them"
                )))
            }
        }
    }
}

/// Finds the first identity that the environment names and that may be used for `url`, in the
/// order of the AWS SDKs. If there is none, also returns the reason.
fn find_identity(policy: &ImportPolicy, url: &Url) -> (KeyOrigin, Option<String>) {
    let mut withheld = None;
    for origin in [
        KeyOrigin::Variables,
        KeyOrigin::WebIdentity,
        KeyOrigin::PodIdentity,
        KeyOrigin::Container,
        KeyOrigin::Machine,
    ] {
        let Some(found) = origin.identity_origin() else {
            continue;
        };
        match policy.lend_identity(found, CloudProvider::Amazon, url) {
            Ok(lent) if origin.is_named(lent) => return (origin, None),
            Ok(_) => {}
            Err(advice) => withheld = Some(advice),
        }
    }
    (KeyOrigin::Nobody, withheld)
}

/// Returns the key pair that CDI or the user gives. A session token from the environment is not
/// used with it, because that token belongs to other keys.
fn given_credential(network: &Arc<Network>) -> AwsCredential {
    let pair = network.credentials.as_ref();
    AwsCredential {
        key_id: pair.map_or("", BasicCredentials::user).to_owned(),
        secret_key: pair.map_or("", BasicCredentials::password).to_owned(),
        token: None,
    }
}

fn in_variables(lent: IdentityVariables<'_>) -> AwsCredential {
    let variable = |name: &str| lent.get(name).map(str::to_owned);
    AwsCredential {
        key_id: variable("AWS_ACCESS_KEY_ID").unwrap_or_default(),
        secret_key: variable("AWS_SECRET_ACCESS_KEY").unwrap_or_default(),
        token: variable("AWS_SESSION_TOKEN"),
    }
}

fn with_variables(
    builder: AmazonS3Builder,
    variables: &[(&str, AmazonS3ConfigKey)],
    lent: IdentityVariables<'_>,
) -> AmazonS3Builder {
    let values = variables.iter().filter_map(|(name, config)| Some((*config, lent.get(name)?)));
    values.fold(builder, |builder, (config, value)| builder.with_config(config, value))
}

fn with_key(builder: AmazonS3Builder, key: &AwsCredential) -> Result<AmazonS3Builder, SourceError> {
    check_key(key)?;
    let builder = builder.with_access_key_id(&key.key_id).with_secret_access_key(&key.secret_key);
    Ok(match &key.token {
        Some(token) => builder.with_token(token),
        None => builder,
    })
}

/// Rejects text that cannot be sent in a header. The usual cause is a line break at the end of a
/// file.
fn check_key(key: &AwsCredential) -> Result<(), SourceError> {
    let fits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits(&key.key_id) && key.token.as_deref().is_none_or(fits) {
        return Ok(());
    }
    Err(invalid_error(
        "the access key id or the session token for S3 holds a character that no key has: is there a \
         line break or a space at its end?",
    ))
}
