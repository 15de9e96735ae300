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

    proptest! {
        #[test]
        fn every_pvc_has_a_service_with_a_valid_name(pvc in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?") {
            let service = upload_service(&pvc);
            prop_assert!(service.len() <= MAX_LABEL, "{}", service);
            prop_assert!(!service.contains('.') && service.starts_with("cdi-upload-"));
        }
    }
}
