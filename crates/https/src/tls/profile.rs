//! CDI's TLS profile: the minimum protocol version and the TLS 1.2 cipher suites, given by their
//! OpenSSL or IANA names.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};

/// The cipher suites that can be offered, with their OpenSSL names. rustls knows the IANA names.
const SUITES: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Suites in CDI's default profile (OpenShift's `Intermediate`) that cannot be offered because
/// rustls has no finite-field Diffie-Hellman. They are reported only if no other suite is listed.
const DEFAULT_BUT_NOT_OFFERED: [&str; 2] =
    ["DHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES256-GCM-SHA384"];

/// Prefixes of TLS 1.3 suite names, which are the same in OpenSSL and IANA. All TLS 1.3 suites are
/// always offered.
const TLS13_PREFIXES: [&str; 3] = ["TLS_AES_", "TLS_CHACHA20_", "TLS_SM4_"];

static VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// The protocol versions and cipher suites that a server may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsProfile {
    needs_tls13: bool,
    /// The allowed TLS 1.2 suites; `None` allows all.
    suites: Option<Vec<CipherSuite>>,
    /// Requested names that cannot be offered.
    not_offered: Vec<String>,
}

impl TlsProfile {
    /// Parses the profile. `min_version` is a version name as in Go (`VersionTLS12`); an empty
    /// name means TLS 1.2. `ciphers` is a comma-separated list; an empty list means all suites.
    /// Older versions, and suites without forward secrecy or authenticated encryption, cannot be
    /// offered.
    pub fn new(min_version: &str, ciphers: &str) -> Self {
        let mut not_offered = Vec::new();
        let mut needs_tls13 = false;
        match min_version {
            "" | "VersionTLS12" => {}
            "VersionTLS13" => needs_tls13 = true,
            older => not_offered.push(older.to_owned()),
        }
        let names = ciphers.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut suites = Vec::new();
        let mut is_restricted = false;
        for name in names {
            is_restricted = true;
            let is_named = |(openssl, suite): &&(&str, CipherSuite)| {
                *openssl == name || suite.as_str() == Some(name)
            };
            match SUITES.iter().find(is_named) {
                Some((_, suite)) => suites.push(*suite),
                // As in Go, TLS 1.3 suites cannot be chosen individually: all of them are offered.
                None if TLS13_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => {}
                None => not_offered.push(name.to_owned()),
            }
        }
        if !suites.is_empty() {
            not_offered.retain(|name| !DEFAULT_BUT_NOT_OFFERED.contains(&name.as_str()));
        }
        Self { needs_tls13, suites: is_restricted.then_some(suites), not_offered }
    }

    /// Returns a message about the requested names that cannot be offered, if there are any. The
    /// ones in CDI's default profile are left out.
    pub fn describe_omissions(&self) -> Option<String> {
        let names = self.not_offered.join(", ");
        (!names.is_empty()).then(|| format!(
            "TLS versions or cipher suites not offered, because they are unsafe or unknown: {names}"
        ))
    }

    /// Returns the protocol versions to offer. If the list contains no usable TLS 1.2 suite, TLS
    /// 1.2 is not offered.
    pub(super) fn protocol_versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        let has_tls12 = self.suites.as_ref().is_none_or(|suites| !suites.is_empty());
        if self.needs_tls13 || !has_tls12 { &VERSIONS[..1] } else { &VERSIONS }
    }

    /// Removes the TLS 1.2 suites from `provider` that are not in the list.
    pub(super) fn restrict_suites(
        &self,
        provider: std::sync::Arc<CryptoProvider>,
    ) -> CryptoProvider {
        let mut provider = std::sync::Arc::unwrap_or_clone(provider);
        if let Some(allowed) = &self.suites {
            provider.cipher_suites.retain(|suite| {
                matches!(suite, SupportedCipherSuite::Tls13(_)) || allowed.contains(&suite.suite())
            });
        }
        provider
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(profile: &TlsProfile) -> Vec<CipherSuite> {
        let provider = profile.restrict_suites(super::super::crypto_provider());
        let tls12 = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
        tls12.map(|suite| suite.suite()).collect()
    }

    #[test]
    fn all_ciphers_of_the_table_can_be_offered() {
        assert_eq!(offered(&TlsProfile::default()).len(), SUITES.len());
        let iana = SUITES[4].1.as_str();
        assert_eq!(iana, Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"));
        for (openssl, suite) in SUITES {
            for name in [openssl, suite.as_str().unwrap()] {
                let profile = TlsProfile::new("", name);
                assert_eq!(offered(&profile), [suite], "{name}");
                assert!(profile.not_offered.is_empty());
                assert_eq!(profile.protocol_versions().len(), 2);
            }
        }
    }

    #[test]
    fn unsupported_names_are_reported_and_leave_tls_1_3() {
        let profile =
            TlsProfile::new("VersionTLS10", "AES128-SHA, DES-CBC3-SHA,TLS_AES_128_GCM_SHA256");
        assert_eq!(profile.not_offered, ["VersionTLS10", "AES128-SHA", "DES-CBC3-SHA"]);
        assert!(offered(&profile).is_empty());
        assert_eq!(profile.protocol_versions(), [&version::TLS13]);
    }

    #[test]
    fn the_default_profile_of_cdi_is_not_reported() {
        let names = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
            ECDHE-ECDSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,\
            ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384,\
            ECDHE-ECDSA-CHACHA20-POLY1305,ECDHE-RSA-CHACHA20-POLY1305,\
            DHE-RSA-AES128-GCM-SHA256,DHE-RSA-AES256-GCM-SHA384";
        let profile = TlsProfile::new("VersionTLS12", names);
        assert!(profile.not_offered.is_empty(), "{profile:?}");
        assert_eq!(offered(&profile).len(), SUITES.len());
        let chosen = TlsProfile::new("", "DHE-RSA-AES128-GCM-SHA256");
        assert_eq!(chosen.not_offered, ["DHE-RSA-AES128-GCM-SHA256"]);
    }

    #[test]
    fn an_empty_list_restricts_nothing_and_the_minimum_may_be_1_3() {
        assert_eq!(TlsProfile::new("", " , ").protocol_versions().len(), 2);
        assert_eq!(TlsProfile::new("VersionTLS12", "").protocol_versions().len(), 2);
        assert_eq!(TlsProfile::new("VersionTLS13", "").protocol_versions(), [&version::TLS13]);
    }
}
