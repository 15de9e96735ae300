//! The dialect of registries, for the download engine.

use async_trait::async_trait;
use fetch::http::{RefusalVerdict, RefusedRequest, ServerDialect, is_transient_status};
use http::{StatusCode, header};
use stream::error::SourceError;

use super::refusal::error_summary;
use super::session::RegistrySession;

/// Adds the token of the session, renews it when the registry no longer accepts it, and repeats
/// the registry's error messages.
#[async_trait]
impl ServerDialect for RegistrySession {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        if let Some(value) = self.authorization_header().await? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(())
    }

    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict {
        let status = refusal.status;
        if status == StatusCode::UNAUTHORIZED && self.handle_challenge(refusal.headers).await {
            return RefusalVerdict::Again(None);
        }
        let (words, advice) = error_summary(refusal.body);
        let text = format!("{status}{words}");
        RefusalVerdict::Described { text, transient: is_transient_status(status), advice }
    }
}
