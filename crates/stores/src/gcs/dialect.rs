//! The dialect of Google Cloud Storage: tokens, generations, and the meaning of its refusals.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{RefusalVerdict, RefusedRequest, ServerDialect};
use fetch::policy::{CloudProvider, IdentityOrigin};
use http::{HeaderValue, header};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use stream::error::SourceError;
use tokio::sync::OnceCell;
use url::Url;

use crate::objects::{
    AgentConnector, MACHINE_LIMIT, ObjectOptions, StoreError, credential_failure, describe_refusal,
    retry_config, take_no_proxy,
};

/// Variable in which Google's libraries look for the path of a key file.
const KEY_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

pub(super) struct GcsDialect {
    network: Arc<Network>,
    /// The account from a key file.
    account: Option<GcsAccount>,
    /// The account of the machine. It is looked up once, when an unsigned request is refused.
    machine: OnceCell<Option<GcpCredentialProvider>>,
    /// The reason why no identity is used, with advice.
    withheld: Option<String>,
    /// The generation that was found first. All later requests are restricted to it.
    generation: OnceLock<String>,
}

/// The account that a key file describes.
struct GcsAccount {
    provider: GcpCredentialProvider,
    /// Where the file was found; `None` if it came with the import.
    found: Option<IdentityOrigin>,
}

impl GcsDialect {
    /// Creates the dialect for an object at `url`.
    pub(super) fn new(
        url: &Url,
        network: &Arc<Network>,
        options: &ObjectOptions,
    ) -> Result<Self, SourceError> {
        let policy = &network.policy;
        let mut dialect = Self {
            network: Arc::clone(network),
            account: None,
            machine: OnceCell::new(),
            withheld: None,
            generation: OnceLock::new(),
        };
        let (key_file, found) = match &options.key_file {
            _ if options.anonymous => (None, None),
            Some(given) => (Some(given.to_string_lossy().into_owned()), None),
            None => match policy.lend_identity(IdentityOrigin::Mounted, CloudProvider::Google, url)
            {
                Ok(lent) => (lent.get(KEY_FILE).map(str::to_owned), Some(IdentityOrigin::Mounted)),
                Err(advice) => {
                    dialect.withheld = Some(advice);
                    (None, None)
                }
            },
        };
        if let Some(file) = key_file {
            let provider = credential_provider(network, Some(&file))?;
            dialect.account = Some(GcsAccount { provider, found });
        }
        if options.anonymous
            || policy.lend_identity(IdentityOrigin::Machine, CloudProvider::Google, url).is_err()
        {
            // Act as if the machine had already been asked: after a refusal, `judge_refusal` must
            // not look for an account that may not be used.
            dialect.machine = OnceCell::new_with(Some(None));
        }
        Ok(dialect)
    }

    /// Returns the account for requests to `url`. An account that was found on the machine may not
    /// be used for every URL that a server redirects to.
    fn provider_for(&self, url: &Url) -> Option<&GcpCredentialProvider> {
        let is_lent =
            |found| self.network.policy.lend_identity(found, CloudProvider::Google, url).is_ok();
        match &self.account {
            Some(account) => Some(&account.provider).filter(|_| account.found.is_none_or(is_lent)),
            None => {
                let machine = self.machine.get().and_then(Option::as_ref);
                machine.filter(|_| is_lent(IdentityOrigin::Machine))
            }
        }
    }

    /// Restricts all later requests to this generation.
    pub(super) fn pin_generation(&self, generation: &str) {
        self.generation.get_or_init(|| generation.to_owned());
    }
}

/// Returns the provider for a machine at Google, or for a workload there that is bound to an
/// account.
async fn of_machine(network: &Arc<Network>) -> Option<GcpCredentialProvider> {
    let provider = credential_provider(&take_no_proxy(network), None).ok()?;
    let asked = tokio::time::timeout(MACHINE_LIMIT, provider.get_credential()).await;
    if matches!(asked, Ok(Ok(_))) {
        return Some(provider);
    }
    tracing::info!("this machine has no credentials for Google Cloud Storage");
    None
}

/// Creates the library's credential provider, for a key file or for the machine.
fn credential_provider(
    network: &Arc<Network>,
    key_file: Option<&str>,
) -> Result<GcpCredentialProvider, SourceError> {
    let mut builder = GoogleCloudStorageBuilder::new()
        // The builder requires a bucket; only its credentials are used.
        .with_bucket_name("any")
        .with_retry(retry_config())
        .with_http_connector(AgentConnector::new(network)?);
    if let Some(file) = key_file {
        builder = builder.with_application_credentials(file);
    }
    let store = builder.build().map_err(|error| {
        let failure = credential_failure(error);
        match key_file {
            Some(file) => {
                let words = format!(
                    "{file} is not a service account key (JSON), or cannot be read: check GOOGLE_APPLICATION_CREDENTIALS"
                );
                failure.with_plain_words(&words)
            }
            None => failure,
        }
    })?;
    Ok(Arc::clone(store.credentials()))
}

#[async_trait]
impl ServerDialect for GcsDialect {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        if let Some(generation) = self.generation.get() {
            let mut query = request.url_mut().query_pairs_mut();
            query.append_pair("generation", generation);
        }
        // With "identity", the server would decompress an object that is stored as gzip. The
        // response would have no length and no ranges, and its digest would describe other bytes.
        let gzip = HeaderValue::from_static("gzip");
        request.headers_mut().insert(header::ACCEPT_ENCODING, gzip);
        let Some(provider) = self.provider_for(request.url()) else {
            return Ok(());
        };
        let secret = "the token for Google Cloud Storage";
        self.network.policy.check_secret_target(secret, request.url())?;
        let token = provider.get_credential().await.map_err(credential_failure)?;
        let mut bearer =
            HeaderValue::try_from(format!("Bearer {}", token.bearer)).map_err(|_| {
                invalid_error("the token for Google Cloud Storage contains an invalid character")
            })?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        Ok(())
    }

    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict {
        let status = refusal.status.as_u16();
        let is_refused_to_nobody = refusal.is_about_who_asks() && self.account.is_none();
        if is_refused_to_nobody && !self.machine.initialized() {
            // The account is looked up only now, because public objects need none, and outside
            // Google the lookup takes all of MACHINE_LIMIT.
            let machine = self.machine.get_or_init(|| of_machine(&self.network)).await;
            if machine.is_some() {
                return RefusalVerdict::Again(None);
            }
        }
        if let (404, Some(generation)) = (status, self.generation.get()) {
            let text = format!(
                "the object changed during the transfer: its generation {generation} no longer exists. Start the import again"
            );
            return RefusalVerdict::Described { text, transient: false, advice: None };
        }
        let advice = self.withheld.as_deref().filter(|_| is_refused_to_nobody);
        let error = StoreError::parse(refusal.body);
        let transient = error.is_some() && (status >= 500 || matches!(status, 408 | 429));
        describe_refusal(refusal.status, error.as_ref(), advice, transient)
    }
}
