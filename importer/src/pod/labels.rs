//! Labels for the volume, which the controller copies from the termination message to the claim.
//!
//! A label that the API server refuses makes every update of the claim fail, so the DataVolume
//! would never succeed. Labels come from an image, whose author may be anyone.

use std::collections::BTreeMap;

use program::names;
use program::report::TerminationMessage;

use super::provenance;

/// Maximum number of labels with a warning of their own. An image may have megabytes of variables.
const MAX_WARNINGS: usize = 100;

/// Characters of a key that a warning shows.
const MAX_KEY_CHARS: usize = 320;

/// Adds the labels among `variables` (`NAME=value` each) to `message`. Drops labels that the API
/// server would reject, those that only the importer may set, and the last labels if not all of
/// them fit into the message.
pub(super) fn add_image_labels(message: &mut TerminationMessage, variables: &[String]) {
    let (valid, invalid): (BTreeMap<_, _>, BTreeMap<_, _>) = variables
        .iter()
        .filter_map(|variable| parse_label(variable))
        .partition(|(key, value)| names::is_label_key(key) && names::is_label_value(value));
    warn_dropped(invalid.keys(), "Kubernetes rejects its key or its value");
    let (forged, allowed): (BTreeMap<_, _>, BTreeMap<_, _>) =
        valid.into_iter().partition(|(key, _)| provenance::is_own_label(key));
    warn_dropped(forged.keys(), "only the importer sets it");
    message.labels = allowed;
    // An error means that the message is too long even without labels. Writing it reports that.
    if let Ok(excess) = message.drop_excess_labels() {
        warn_dropped(excess.keys(), "it does not fit into the termination message");
    }
}

fn warn_dropped<'a>(keys: impl ExactSizeIterator<Item = &'a String>, reason: &str) {
    let unnamed = keys.len().saturating_sub(MAX_WARNINGS);
    for key in keys.take(MAX_WARNINGS) {
        let key = printable::escape_line(key, MAX_KEY_CHARS);
        tracing::warn!("dropped the label {key} of the image: {reason}");
    }
    if unnamed > 0 {
        tracing::warn!("dropped {unnamed} more labels of the image: {reason}");
    }
}

/// Converts `A_B_KUBEVIRT_IO_C_D=v` to the label `a.b.kubevirt.io/c-d: v`. Returns `None` for
/// other variables.
fn parse_label(variable: &str) -> Option<(String, String)> {
    const MARK: &str = "KUBEVIRT_IO_";
    let (name, value) = variable.split_once('=')?;
    let (before, after) = name.split_once(MARK)?;
    let domain: String = before
        .trim_end_matches('_')
        .split('_')
        .filter(|part| !part.is_empty())
        .fold(String::new(), |mut domain, part| {
            domain.push_str(part);
            domain.push('.');
            domain
        });
    let key = format!("{domain}kubevirt.io/{}", after.replace('_', "-"));
    Some((key.to_lowercase(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels_of(variables: &[&str]) -> BTreeMap<String, String> {
        let variables: Vec<_> = variables.iter().map(|variable| (*variable).to_owned()).collect();
        let mut message = TerminationMessage::default();
        add_image_labels(&mut message, &variables);
        message.labels
    }

    #[test]
    fn variables_of_kubevirt_become_labels() {
        for (variable, key, value) in [
            ("TEST_TEST_KUBEVIRT_IO_TEST_TEST=v", "test.test.kubevirt.io/test-test", "v"),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
                "instancetype.kubevirt.io/default-instancetype",
                "u1.small",
            ),
            ("KUBEVIRT_IO_X=a=B", "kubevirt.io/x", "a=B"),
        ] {
            assert_eq!(parse_label(variable), Some((key.to_owned(), value.to_owned())));
        }
        for variable in ["PATH=/bin", "KUBEVIRT_IO_X", "KUBEVIRT_IO=1", ""] {
            assert_eq!(parse_label(variable), None, "{variable}");
        }
    }

    #[test]
    fn labels_that_the_api_server_refuses_are_dropped_alone() {
        let long = format!("KUBEVIRT_IO_LONG={}", "v".repeat(64));
        let labels = labels_of(&[
            "KUBEVIRT_IO_X=a=B",
            "KUBEVIRT_IO_GOOD=b",
            "KUBEVIRT_IO_=a",
            "KUBEVIRT_IO_\u{dc}=a",
            "KUBEVIRT_IO_END=a.",
            &long,
        ]);
        assert_eq!(labels, [("kubevirt.io/good".to_owned(), "b".to_owned())].into());
    }

    #[test]
    fn no_image_sets_the_labels_of_the_importer() {
        let labels = labels_of(&[
            "CDIWORKERS_KUBEVIRT_IO_SOURCE_DIGEST=sha256-forged",
            "cdiworkers_KUBEVIRT_IO_disk-bytes=1",
            "__CDIWORKERS__KUBEVIRT_IO_IMPORTER_VERSION=9",
            "CDIWORKERS_KUBEVIRT_IO_OTHER=a",
        ]);
        assert_eq!(labels, [("cdiworkers.kubevirt.io/other".to_owned(), "a".to_owned())].into());
    }

    #[test]
    fn a_huge_environment_costs_no_more_than_a_message() {
        let variables: Vec<_> =
            (0..200_000).map(|number| format!("KUBEVIRT_IO_L{number:06}=v")).collect();
        let mut message = TerminationMessage::default();
        add_image_labels(&mut message, &variables);
        assert!(message.labels.len() > 100 && message.to_json().is_ok());
    }

    proptest! {
        #[test]
        #[ignore = "slow: 2 s of CPU time"]
        fn whatever_an_image_says_the_message_can_be_applied(
            variables in prop::collection::vec("[A-Z_]{0,4}KUBEVIRT_IO_[A-Z_.\u{e4}]{0,70}=[a-zA-Z.=\u{1f600}-]{0,70}", 0..90)
        ) {
            let mut message = TerminationMessage { message: Some("m".to_owned()), ..TerminationMessage::default() };
            add_image_labels(&mut message, &variables);
            prop_assert!(message.to_json().is_ok());
            for (key, value) in &message.labels {
                prop_assert!(names::is_label_key(key) && names::is_label_value(value));
            }
        }
    }
}
