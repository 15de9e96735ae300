//! The responses to uploads.

use http::StatusCode;
pub(crate) use https::reply::{
    LINGER, Reply, drain_body, empty_reply, not_found, refuse_body, text_reply, typed_reply,
};
use program::logging::POD_LINES;

use crate::checksum::AnnouncedChecksum;
use crate::failure::UploadError;
use crate::job::UploadJob;

/// Returns the response to a failed upload.
pub(crate) fn failure_reply(failure: &UploadError) -> Reply {
    let end = if failure.ends_line { "\n" } else { "" };
    text_reply(failure.status, format!("{}{end}", failure.sentence))
}

/// Waits for the outcome of an upload and returns the response to the request that completes it.
/// The body is one line for people; CDI's clients ignore it.
pub(crate) async fn outcome_reply(job: &UploadJob) -> Reply {
    match job.wait_for_answer().await {
        Ok(()) => {
            if job.plan.is_async() {
                tracing::info!(target: POD_LINES, "Returning success to caller, continue processing in background");
            }
            text_reply(StatusCode::OK, success_line(job))
        }
        Err(failure) => failure_reply(&failure),
    }
}

/// Returns the line for people after a success. It contains the number of received bytes, the
/// recognized format, and the checksum that was verified.
pub(crate) fn success_line(job: &UploadJob) -> String {
    let mut line = format!("received {} bytes", job.progress.received_bytes());
    match job.progress.image_facts() {
        Some(facts) => {
            let kind = facts
                .layers
                .iter()
                .copied()
                .chain([facts.format.name()])
                .collect::<Vec<_>>()
                .join(", ");
            line.push_str(&format!(" ({kind})"));
            let disk_bytes = facts.virtual_size.or(job.progress.disk_bytes.get().copied());
            if let Some(virtual_size) = disk_bytes {
                line.push_str(&format!(", a disk of {virtual_size} bytes"));
            }
        }
        None => line.push_str(" of an archive"),
    }
    if let AnnouncedChecksum::Known(checksum) = &job.plan.promise {
        line.push_str(&format!(", {} matches", checksum.algorithm()));
    }
    if let Some(warning) = job.progress.image_facts().and_then(|facts| facts.warning) {
        line.push_str(&format!("; warning: {warning}"));
    }
    line.push_str(if job.plan.is_async() { "; the disk is being completed\n" } else { "\n" });
    line
}
