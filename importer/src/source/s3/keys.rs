//! Who asks: keys that were given, those that the environment of a workload leads to, or nobody.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::error::{SourceError, SourceErrorKind};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use tokio::sync::Mutex;

use crate::source::access::Access;
use crate::source::objects::{Connector, credential_failure, patience, take_no_proxy};

/// Longest wait for the credentials of a machine: where no such service is, its address may lead nowhere.
const MACHINE_LIMIT: Duration = Duration::from_secs(3);

/// Credentials that were renewed since are those that another connection's failure asked for.
const JUST_NOW: Duration = Duration::from_secs(10);

/// The variables that decide, in the order of the AWS SDKs, and what the library calls them.
const WEB_IDENTITY: [(&str, AmazonS3ConfigKey); 4] = [
    (
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        AmazonS3ConfigKey::WebIdentityTokenFile,
    ),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
];
const CONTAINER: [(&str, AmazonS3ConfigKey); 3] = [
    (
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    ),
    (
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ),
    (
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
    ),
];
const MACHINE: [(&str, AmazonS3ConfigKey); 1] = [(
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    AmazonS3ConfigKey::MetadataEndpoint,
)];

/// Where keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// They were given and do not change.
    Given,
    /// A token of the workload is exchanged for them (IRSA).
    WebIdentity,
    /// The platform hands them out to the container (ECS, EKS Pod Identity).
    Container,
    /// The machine's role; tried when nobody is refused.
    Machine,
    /// Requests are not signed, whatever is answered.
    Nobody,
}

/// Gives out keys, and gets new ones when they have expired.
pub(super) struct Keys {
    origin: Origin,
    access: Access,
    region: String,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    provider: Option<AwsCredentialProvider>,
    renewed: Option<Instant>,
}

impl Keys {
    /// The keys of `access`, or else those that its environment names. `region` is where tokens are exchanged.
    pub(super) fn find(access: &Access, anonymous: bool, region: &str) -> Result<Self, SourceError> {
        let given = given(access).filter(|_| !anonymous);
        let has = |name: &str| {
            access
                .environment
                .get(name)
                .is_some_and(|value| !value.is_empty())
        };
        let origin = if anonymous {
            Origin::Nobody
        } else if given.is_some() {
            Origin::Given
        } else if has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN") {
            Origin::WebIdentity
        } else if CONTAINER.iter().take(2).any(|(name, _)| has(name)) {
            Origin::Container
        } else if access
            .environment
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|value| value == "true")
        {
            Origin::Nobody
        } else {
            Origin::Machine
        };
        let keys = Self {
            origin,
            access: access.clone(),
            region: region.to_owned(),
            current: Mutex::default(),
        };
        let provider = match (origin, given) {
            (Origin::Given, Some(key)) => Some(keys.provider(&[], Some(&key))?),
            (Origin::WebIdentity | Origin::Container, _) => Some(keys.fresh()?),
            _ => None,
        };
        Ok(Self {
            current: Mutex::new(Current {
                provider,
                renewed: None,
            }),
            ..keys
        })
    }

    /// What to sign with; nothing if nobody asks.
    pub(super) async fn current(&self) -> Result<Option<Arc<AwsCredential>>, SourceError> {
        let provider = self.current.lock().await.provider.clone();
        let Some(provider) = provider else { return Ok(None) };
        let key = provider
            .get_credential()
            .await
            .map_err(|error| credential_failure(&error))?;
        check(&key)?;
        Ok(Some(key))
    }

    /// Gets others, because the server takes these no longer. False if there are none.
    pub(super) async fn renew(&self) -> bool {
        let mut current = self.current.lock().await;
        let fresh = match self.origin {
            Origin::Given | Origin::Nobody => return false,
            Origin::Machine if current.provider.is_none() && current.renewed.is_some() => return false,
            _ if current
                .renewed
                .is_some_and(|renewed| renewed.elapsed() < JUST_NOW) =>
            {
                return true;
            }
            _ => self.fresh(),
        };
        current.renewed = Some(Instant::now());
        let Ok(fresh) = fresh else { return false };
        if self.origin == Origin::Machine {
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

    fn fresh(&self) -> Result<AwsCredentialProvider, SourceError> {
        match self.origin {
            Origin::WebIdentity => self.provider(&WEB_IDENTITY, None),
            Origin::Container => self.provider(&CONTAINER, None),
            _ => self.provider(&MACHINE, None),
        }
    }

    /// The library's provider: of `key`, or what the `variables` lead to.
    fn provider(
        &self,
        variables: &[(&str, AmazonS3ConfigKey)],
        key: Option<&AwsCredential>,
    ) -> Result<AwsCredentialProvider, SourceError> {
        let connector = match self.origin {
            Origin::Container | Origin::Machine => Connector::new(&take_no_proxy(&self.access))?,
            _ => Connector::new(&self.access)?,
        };
        let mut builder = AmazonS3Builder::new()
            // It wants one, though only credentials are asked of it.
            .with_bucket_name("any")
            .with_region(&self.region)
            .with_retry(patience())
            .with_http_connector(connector);
        for (name, config) in variables {
            if let Some(value) = self
                .access
                .environment
                .get(*name)
                .filter(|value| !value.is_empty())
            {
                builder = builder.with_config(*config, value);
            }
        }
        if let Some(key) = key {
            check(key)?;
            builder = builder
                .with_access_key_id(&key.key_id)
                .with_secret_access_key(&key.secret_key);
            if let Some(token) = &key.token {
                builder = builder.with_token(token);
            }
        }
        let store = builder.build().map_err(|error| credential_failure(&error))?;
        Ok(Arc::clone(store.credentials()))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({:?})", self.origin)
    }
}

/// The pair that CDI or the user gives, or that of the environment.
fn given(access: &Access) -> Option<AwsCredential> {
    let variable = |name: &str| {
        access
            .environment
            .get(name)
            .filter(|value| !value.is_empty())
            .cloned()
    };
    let token = variable("AWS_SESSION_TOKEN");
    if let Some(pair) = &access.credentials {
        return Some(AwsCredential {
            key_id: pair.user().to_owned(),
            secret_key: pair.password().to_owned(),
            token,
        });
    }
    Some(AwsCredential {
        key_id: variable("AWS_ACCESS_KEY_ID")?,
        secret_key: variable("AWS_SECRET_ACCESS_KEY")?,
        token,
    })
}

/// Refuses what cannot stand in a header, of which a line break at the end of a file is the usual case.
fn check(key: &AwsCredential) -> Result<(), SourceError> {
    let fits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits(&key.key_id) && key.token.as_deref().is_none_or(fits) {
        return Ok(());
    }
    let message = "the access key id or the session token for S3 holds a character that no key has: is there a \
                   line break or a space at its end?";
    Err(SourceError::new(SourceErrorKind::Invalid, message))
}
