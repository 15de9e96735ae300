//! The manners of registries, for the download engine.

use std::sync::Arc;

use datapath::error::SourceError;
use http::{StatusCode, header};

use super::refusal::words;
use super::session::Session;
use crate::http::{BoxFuture, Dialect, RefusedRequest, Verdict};

/// Adds the token of the session, renews it when the registry takes it no more, and repeats the registry's words.
#[derive(Debug)]
pub(super) struct RegistryDialect {
    session: Arc<Session>,
}

impl RegistryDialect {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }
}

impl Dialect for RegistryDialect {
    fn authorize<'a>(&'a self, request: &'a mut reqwest::Request) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            if let Some(value) = self.session.authorization().await? {
                request.headers_mut().insert(header::AUTHORIZATION, value);
            }
            Ok(())
        })
    }

    fn refused<'a>(&'a self, refusal: RefusedRequest<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let RefusedRequest {
                status,
                headers,
                body,
                ..
            } = refusal;
            if status == StatusCode::UNAUTHORIZED && self.session.refused(headers).await {
                return Verdict::Again(None);
            }
            let passes = matches!(
                status,
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            );
            Verdict::Described {
                text: format!("{status}{}", words(body)),
                transient: passes || status.is_server_error(),
            }
        })
    }
}
