//! The manners of registries, for the download engine.

use async_trait::async_trait;
use datapath::error::SourceError;
use http::{StatusCode, header};

use super::refusal::words;
use super::session::Session;
use crate::http::{Dialect, RefusedRequest, Verdict, passes};

/// Adds the token of the session, renews it when the registry takes it no more, and repeats the registry's words.
#[async_trait]
impl Dialect for Session {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        if let Some(value) = self.authorization().await? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(())
    }

    async fn refused(&self, refusal: RefusedRequest<'_>) -> Verdict {
        let status = refusal.status;
        if status == StatusCode::UNAUTHORIZED && self.challenged(refusal.headers).await {
            return Verdict::Again(None);
        }
        Verdict::Described {
            text: format!("{status}{}", words(refusal.body)),
            transient: passes(status),
        }
    }
}
