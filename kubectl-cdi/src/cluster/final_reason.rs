//! Reasons why an import will fail again, no matter how often CDI retries it.

use program::exit::ExitReason;

/// Messages of importer pods, ours and CDI's, that report a final answer of the source: another
/// request would get the same answer. Temporary failures are not in the list: no response, a host
/// name that does not resolve (its Service may be created later), and the statuses 5xx, 429 and
/// 408.
const REFUSALS: [&str; 17] = [
    // HTTP: not found, gone, not authenticated, not permitted.
    "got 404",
    "got 410",
    "got 401",
    "got 403",
    // S3 error codes (API reference, list of error codes), which GCS uses too.
    "NoSuchKey",
    "NoSuchBucket",
    "AccessDenied",
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    // Registries (OCI distribution specification, error codes).
    "manifest unknown",
    "name unknown",
    "unauthorized",
    "authentication required",
    // Certificate errors, as worded by rustls and by Go. A retry cannot succeed, because a CA
    // added with --cert-configmap only affects the next pod.
    "invalid peer certificate",
    ": its certificate ",
    "x509: certificate signed by unknown authority",
    "x509: certificate is valid for",
];

/// CDI's message for every image that does not fit. A retry cannot succeed, because a volume that
/// CDI fills does not grow.
const TOO_SMALL: &str = "DataVolume too small to contain image";

/// Finds the exit code in the last message of a pod that CDI has restarted `restarts` times.
/// Returns `None` if another attempt may succeed. A rejection by the source counts only after a
/// restart: for the first attempt, the Secret, the object or the permission may have been created
/// a moment too late.
pub(crate) fn final_reason(sentence: &str, restarts: u64) -> Option<ExitReason> {
    if sentence.contains(TOO_SMALL) {
        return Some(ExitReason::NoSpace);
    }
    let is_refusal = REFUSALS.iter().any(|words| sentence.contains(words));
    (is_refusal && restarts > 0).then_some(ExitReason::Source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusals_are_final_and_a_small_volume_is_at_once() {
        for sentence in [
            "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found",
            "Unable to connect to s3 data source: could not get s3 object: \"b/k\": NoSuchKey: The specified key does not exist.",
            "failed to pull image: reading manifest 1 in host/disk: manifest unknown",
            "https://h/d: its certificate is not signed by a trusted authority",
            "Get \"https://h/d\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ] {
            assert_eq!(final_reason(sentence, 0), None, "{sentence}");
            assert_eq!(final_reason(sentence, 1), Some(ExitReason::Source), "{sentence}");
        }
        assert_eq!(final_reason(TOO_SMALL, 0), Some(ExitReason::NoSpace));
    }

    #[test]
    fn temporary_failures_are_waited_for() {
        for sentence in [
            "Pod is running",
            "expected status code 200, got 503. Status: 503 Service Unavailable",
            "expected status code 200, got 429. Status: 429 Too Many Requests",
            "http://h/d: cannot find h port 80: failed to lookup address information: Name or service not known",
            "connect: connection refused",
            "unexpected EOF",
        ] {
            assert_eq!(final_reason(sentence, 9), None, "{sentence}");
        }
    }
}
