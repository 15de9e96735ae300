//! The answers to uploads.

use http::{StatusCode, header};
pub(crate) use https::reply::{
    LINGER, Reply, drain_body, empty_reply, not_found, refuse_body, text_reply, typed_reply,
};

use crate::failure::UploadError;
use crate::job::UploadJob;
use crate::slot::SlotOccupied;

/// The answer to an upload that may not begin.
pub(crate) fn occupied_reply(refusal: SlotOccupied) -> Reply {
    match refusal {
        SlotOccupied::Busy => {
            tracing::warn!("Got concurrent upload request");
            empty_reply(StatusCode::SERVICE_UNAVAILABLE)
        }
        SlotOccupied::Done => {
            tracing::warn!("Got upload request after already done");
            empty_reply(StatusCode::CONFLICT)
        }
    }
}

/// The answer to an upload that has failed.
pub(crate) fn failure_reply(failure: &UploadError) -> Reply {
    let reply = text_reply(failure.status, failure.sentence.clone());
    match failure.accepted {
        Some(codings) => with_accept_encoding(codings, reply),
        None => reply,
    }
}

/// Tells with `reply` which codings would have been understood, beside none at all (RFC 9110 §15.5.16).
pub(crate) fn with_accept_encoding(codings: &[&str], mut reply: Reply) -> Reply {
    let codings: Vec<&str> = codings.iter().copied().chain(["identity"]).collect();
    if let Ok(codings) = codings.join(", ").parse() {
        reply.headers_mut().insert(header::ACCEPT_ENCODING, codings);
    }
    reply
}

/// The answer to the request that completes an upload.
pub(crate) async fn outcome_reply(job: &UploadJob) -> Reply {
    match job.wait_for_answer().await {
        Ok(()) => {
            if job.plan.is_async {
                tracing::info!("Returning success to caller, continue processing in background");
            }
            empty_reply(StatusCode::OK)
        }
        Err(failure) => failure_reply(&failure),
    }
}
