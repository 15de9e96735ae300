//! How Google Cloud Storage is spoken to: tokens, generations, and what its refusals mean.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderValue, header};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use tokio::sync::OnceCell;
use url::Url;

use super::GcsOptions;
use crate::source::access::Access;
use crate::source::http::{BoxFuture, Dialect, Refusal, Verdict};
use crate::source::objects::{Connector, StoreError, credential_failure, patience, take_no_proxy};

/// Longest wait for the token of a machine: elsewhere than at Google there is none.
const MACHINE_LIMIT: Duration = Duration::from_secs(3);

pub(super) struct GcsDialect {
    access: Access,
    /// Who asks, according to a file.
    account: Option<GcpCredentialProvider>,
    /// Who asks, according to the machine; looked for once, when nobody is refused.
    machine: OnceCell<Option<GcpCredentialProvider>>,
    /// The generation that was found, which all later requests are about.
    generation: OnceLock<String>,
}

impl GcsDialect {
    pub(super) fn new(access: &Access, options: GcsOptions) -> Result<Self, SourceError> {
        let key_file = options.key_file.filter(|_| !options.anonymous);
        let account = key_file.map(|file| provider(access, Some(&file.to_string_lossy())));
        Ok(Self {
            access: access.clone(),
            account: account.transpose()?,
            machine: OnceCell::new_with(options.anonymous.then_some(None)),
            generation: OnceLock::new(),
        })
    }

    /// From now on, only this generation is asked for.
    pub(super) fn pin(&self, generation: &str) {
        self.generation.get_or_init(|| generation.to_owned());
    }

    async fn complete(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        if let Some(generation) = self.generation.get() {
            let mut query = request.url_mut().query_pairs_mut();
            query.append_pair("generation", generation);
        }
        // "identity" would unpack what is stored as gzip: without a length, without ranges, and with a digest that is of
        // other bytes.
        let gzip = HeaderValue::from_static("gzip");
        request.headers_mut().insert(header::ACCEPT_ENCODING, gzip);
        let machine = self
            .machine
            .get()
            .and_then(Option::as_ref)
            .filter(|_| is_google(request.url()));
        let Some(provider) = self.account.as_ref().or(machine) else {
            return Ok(());
        };
        let token = provider
            .get_credential()
            .await
            .map_err(|error| credential_failure(&error))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.bearer)).map_err(|_| {
            let message = "the token for Google Cloud Storage holds a character that no token has";
            SourceError::new(SourceErrorKind::Invalid, message)
        })?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        Ok(())
    }

    async fn judge(&self, refusal: Refusal<'_>) -> Verdict {
        let status = refusal.status.as_u16();
        let is_refused_to_nobody = matches!(status, 401 | 403) && self.account.is_none();
        if is_refused_to_nobody && is_google(refusal.url) && !self.machine.initialized() {
            let machine = self.machine.get_or_init(|| of_machine(&self.access)).await;
            if machine.is_some() {
                return Verdict::Again(None);
            }
        }
        if let (404, Some(generation)) = (status, self.generation.get()) {
            let text = format!(
                "the object changed during the transfer: its generation {generation} is no longer there. \
                 Start the import again"
            );
            return Verdict::Described {
                text,
                transient: false,
            };
        }
        match StoreError::parse(refusal.body) {
            Some(error) => Verdict::Described {
                transient: status >= 500 || matches!(status, 408 | 429),
                text: error.sentence(),
            },
            None => Verdict::Plain,
        }
    }
}

/// Whoever has the token of a machine can do all that the machine may: nobody but Google gets it, whatever the endpoint
/// says.
fn is_google(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_storage = host == "storage.googleapis.com" || host.ends_with(".storage.googleapis.com");
    url.scheme() == "https" && is_storage
}

/// The provider of a machine at Google, or of a workload there that is bound to an account.
async fn of_machine(access: &Access) -> Option<GcpCredentialProvider> {
    let provider = provider(&take_no_proxy(access), None).ok()?;
    let asked = tokio::time::timeout(MACHINE_LIMIT, provider.get_credential()).await;
    if matches!(asked, Ok(Ok(_))) {
        return Some(provider);
    }
    tracing::info!("this machine has no credentials for Google Cloud Storage");
    None
}

/// The library's provider: of a file, or of the machine.
fn provider(access: &Access, key_file: Option<&str>) -> Result<GcpCredentialProvider, SourceError> {
    let mut builder = GoogleCloudStorageBuilder::new()
        // It wants one, though only credentials are asked of it.
        .with_bucket_name("any")
        .with_retry(patience())
        .with_http_connector(Connector::new(access)?);
    if let Some(file) = key_file {
        builder = builder.with_application_credentials(file);
    }
    let store = builder.build().map_err(|error| credential_failure(&error))?;
    Ok(Arc::clone(store.credentials()))
}

impl fmt::Debug for GcsDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcsDialect")
    }
}

impl Dialect for GcsDialect {
    fn authorize<'a>(&'a self, request: &'a mut reqwest::Request) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(self.complete(request))
    }

    fn refused<'a>(&'a self, refusal: Refusal<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(self.judge(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_machine_is_for_google_only() {
        for (url, expected) in [
            ("https://storage.googleapis.com/b/o", true),
            ("https://b.storage.googleapis.com/o", true),
            ("http://storage.googleapis.com/b/o", false),
            ("https://storage.googleapis.com.example/b/o", false),
            ("https://xstorage.googleapis.com/b/o", false),
            ("https://127.0.0.1/b/o", false),
        ] {
            assert_eq!(is_google(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
