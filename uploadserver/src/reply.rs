//! The answers to uploads.

use http::StatusCode;
pub(crate) use https::reply::{
    LINGER, Reply, drain_body, empty_reply, not_found, refuse_body, text_reply, typed_reply,
};

use crate::failure::UploadError;
use crate::job::UploadJob;

/// The answer to an upload that has failed.
pub(crate) fn failure_reply(failure: &UploadError) -> Reply {
    text_reply(failure.status, failure.sentence.clone())
}

/// The answer to the request that completes an upload.
pub(crate) async fn outcome_reply(job: &UploadJob) -> Reply {
    match job.wait_for_answer().await {
        Ok(()) => {
            if job.plan.is_async() {
                tracing::info!("Returning success to caller, continue processing in background");
            }
            empty_reply(StatusCode::OK)
        }
        Err(failure) => failure_reply(&failure),
    }
}
