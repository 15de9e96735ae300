//! Computes the names that CDI's controller gives to the Services of upload pods.

use program::names::{MAX_LABEL, MAX_SUBDOMAIN};
pub(crate) use program::names::{is_label, is_subdomain};

/// Number of characters that the hash adds to a name: eight digits and two hyphens.
const HASHED: usize = 10;

const PREFIX: &str = "cdi-upload";
const SUFFIX: &str = "cdi";

/// Returns the name of the Service for the upload pod of `pvc`. `a.b` and `a-b` produce the same
/// name, as in upstream.
pub(crate) fn upload_service(pvc: &str) -> String {
    let resource = hashed_name(PREFIX, pvc, MAX_SUBDOMAIN);
    let name = resource.replace('.', "-");
    if name.len() <= MAX_LABEL { name } else { hashed_name(&name, SUFFIX, MAX_LABEL) }
}

/// Returns `base-suffix`. If that exceeds `most` characters, `base` is truncated and a hash is
/// inserted.
fn hashed_name(base: &str, suffix: &str, most: usize) -> String {
    let whole = format!("{base}-{suffix}");
    if whole.len() <= most {
        return whole;
    }
    match most.checked_sub(HASHED + suffix.len()) {
        Some(room) if room > 0 => {
            let base_part = base.get(..room).unwrap_or(base);
            format!("{base_part}-{:08x}-{suffix}", fnv1a_hash(base))
        }
        _ => {
            let room = base.len().min(most.saturating_sub(HASHED - 1));
            format!("{}-{:08x}", base.get(..room).unwrap_or(base), fnv1a_hash(&whole))
        }
    }
}

/// Computes FNV-1a with 32 bits (draft-eastlake-fnv §5: offset basis 2166136261, prime 16777619).
fn fnv1a_hash(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn services_are_named_as_the_controller_names_them() {
        let long = format!("import-long-name-dv-{}1234567890", "123456789-".repeat(13));
        let dotted = long.replace("9-", "9.");
        let cut = format!("cdi-upload-{}", "a".repeat(39));
        for (pvc, service) in [
            ("upload-test".to_owned(), "cdi-upload-upload-test".to_owned()),
            ("my.pvc".to_owned(), "cdi-upload-my-pvc".to_owned()),
            (
                "prime-0b9c7c5e-6e0e-4a8e-9b1b-0f3f1f2e3d4c".to_owned(),
                "cdi-upload-prime-0b9c7c5e-6e0e-4a8e-9b1b-0f3f1f2e3d4c".to_owned(),
            ),
            ("a".repeat(52), format!("cdi-upload-{}", "a".repeat(52))),
            ("a".repeat(53), format!("{cut}-e31485ef-cdi")),
            ("a".repeat(242), format!("{cut}-27e7dcce-cdi")),
            ("a".repeat(243), "cdi-upload-8100677d".to_owned()),
            ("a".repeat(253), "cdi-upload-bbdff417".to_owned()),
            (long, "cdi-upload-import-long-name-dv-123456789-123456789-92423cc1-cdi".to_owned()),
            (dotted, "cdi-upload-import-long-name-dv-123456789-123456789-92423cc1-cdi".to_owned()),
        ] {
            assert_eq!(upload_service(&pvc), service, "{pvc}");
        }
    }

    proptest! {
        #[test]
        fn every_pvc_has_a_service_with_a_valid_name(pvc in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?") {
            let service = upload_service(&pvc);
            prop_assert!(service.len() <= MAX_LABEL, "{}", service);
            prop_assert!(!service.contains('.') && service.starts_with("cdi-upload-"));
        }
    }
}
