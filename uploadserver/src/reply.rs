//! The answers to uploads.

use http::StatusCode;
pub(crate) use https::reply::{
    LINGER, Reply, drain_body, empty_reply, not_found, refuse_body, text_reply, typed_reply,
};

use crate::checksum::AnnouncedChecksum;
use crate::failure::UploadError;
use crate::job::UploadJob;

/// The answer to an upload that has failed.
pub(crate) fn failure_reply(failure: &UploadError) -> Reply {
    text_reply(failure.status, failure.sentence.clone())
}

/// The answer to the request that completes an upload: in one line what has become of it, which CDI's clients do not look at.
pub(crate) async fn outcome_reply(job: &UploadJob) -> Reply {
    match job.wait_for_answer().await {
        Ok(()) => {
            if job.plan.is_async() {
                tracing::info!("Returning success to caller, continue processing in background");
            }
            text_reply(StatusCode::OK, success_line(job))
        }
        Err(failure) => failure_reply(&failure),
    }
}

/// A success for people: bytes that came, what they were taken for, and what was compared.
pub(crate) fn success_line(job: &UploadJob) -> String {
    let mut line = format!("received {} bytes", job.progress.received_bytes());
    match job.progress.image_facts() {
        Some(facts) => {
            let kind =
                facts.layers.iter().copied().chain([facts.format.name()]).collect::<Vec<_>>().join(", ");
            line.push_str(&format!(" ({kind})"));
            if let Some(virtual_size) = facts.virtual_size {
                line.push_str(&format!(", a disk of {virtual_size} bytes"));
            }
        }
        None => line.push_str(" of an archive"),
    }
    if let AnnouncedChecksum::Known(checksum) = &job.plan.promise {
        line.push_str(&format!(", {} matches", checksum.algorithm()));
    }
    line.push_str(if job.plan.is_async() { "; the disk is being completed\n" } else { "\n" });
    line
}
