//! The answers to uploads.

use http::{StatusCode, header};
pub(crate) use https::reply::{LINGER, Reply, drain, empty, not_found, refuse, text, typed};

use crate::failure::UploadFailed;
use crate::job::Job;
use crate::slot::Occupied;

/// The answer to an upload that may not begin.
pub(crate) fn refused(refusal: Occupied) -> Reply {
    match refusal {
        Occupied::Busy => {
            tracing::warn!("Got concurrent upload request");
            empty(StatusCode::SERVICE_UNAVAILABLE)
        }
        Occupied::Done => {
            tracing::warn!("Got upload request after already done");
            empty(StatusCode::CONFLICT)
        }
    }
}

/// The answer to an upload that has failed.
pub(crate) fn failed(failure: &UploadFailed) -> Reply {
    let reply = text(failure.status, failure.sentence.clone());
    match failure.accepted {
        Some(codings) => accepting(codings, reply),
        None => reply,
    }
}

/// Tells with `reply` which codings would have been understood, beside none at all (RFC 9110 §15.5.16).
pub(crate) fn accepting(codings: &[&str], mut reply: Reply) -> Reply {
    let codings: Vec<&str> = codings.iter().copied().chain(["identity"]).collect();
    if let Ok(codings) = codings.join(", ").parse() {
        reply.headers_mut().insert(header::ACCEPT_ENCODING, codings);
    }
    reply
}

/// The answer to the request that completes an upload.
pub(crate) async fn outcome(job: &Job) -> Reply {
    match job.answer().await {
        Ok(()) => {
            if job.plan.is_async {
                tracing::info!("Returning success to caller, continue processing in background");
            }
            empty(StatusCode::OK)
        }
        Err(failure) => failed(&failure),
    }
}
