//! Loads the certificates that a client trusts.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use program::limited::read_limited;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::TlsError;

/// Maximum size of a certificate file. A ConfigMap holds at most 1 MiB, and a bundle of all public
/// CAs has 250 KiB.
pub const MAX_ROOTS_BYTES: u64 = 4 << 20;

/// The certificates that a client trusts.
#[derive(Debug)]
pub struct TrustedRoots {
    /// Certificates that may be issuers of other certificates.
    pub(super) issuers: RootCertStore,
    /// All certificates, including those that cannot be issuers. A server may present one of them
    /// as its own.
    pub(super) exact: HashSet<CertificateDer<'static>>,
}

impl TrustedRoots {
    /// Returns an empty set, which trusts no server.
    pub fn none() -> Self {
        Self { issuers: RootCertStore::empty(), exact: HashSet::new() }
    }

    /// Trusts the certificates in a PEM bundle. Returns `None` if the bundle contains no usable
    /// certificate.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let mut roots = Self::none();
        (roots.add_pem(pem) > 0).then_some(roots)
    }

    /// Trusts the operating system's roots, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR` if
    /// these variables are set. An empty result is not an error, because plain HTTP works without
    /// roots.
    pub fn from_system() -> Self {
        let mut roots = Self::none();
        let found = rustls_native_certs::load_native_certs();
        for error in found.errors {
            tracing::debug!(%error, "some of the system's certificates cannot be read");
        }
        for certificate in found.certs {
            roots.add_certificate(certificate);
        }
        roots
    }

    /// Trusts `certificate`, both as an issuer and as a server certificate.
    pub fn add_certificate(&mut self, certificate: CertificateDer<'static>) {
        if let Err(error) = self.issuers.add(certificate.clone()) {
            tracing::debug!(%error, "a certificate cannot be used as a CA");
        }
        self.exact.insert(certificate);
    }

    /// Trusts the certificates in all files directly in `folder`, whatever their extension, except
    /// files whose name begins with a dot. Symbolic links are followed, because the files of a
    /// mounted Secret are links into its hidden directory `..data`.
    pub fn add_dir(&mut self, folder: &Path) -> Result<(), TlsError> {
        for path in list_files(folder)? {
            tracing::info!("Attempting to get certs from {}", path.display());
            // An image beside the certificates is not one of them.
            if path.metadata().is_ok_and(|file| file.len() > MAX_ROOTS_BYTES) {
                tracing::warn!("No certs in {}: it is too large", path.display());
                continue;
            }
            let pem = read_file(&path).map_err(|source| {
                let action = "cannot read the certificates in";
                TlsError::File { action, path: path.clone(), source }
            })?;
            if self.add_pem(&pem) == 0 {
                tracing::warn!("No certs in {}", path.display());
            }
        }
        Ok(())
    }

    /// Like [`TrustedRoots::add_dir`], for a directory that may be missing. All errors are
    /// ignored.
    pub(super) fn add_optional_dir(&mut self, folder: &Path) {
        for path in list_files(folder).unwrap_or_default() {
            if let Ok(pem) = read_file(&path) {
                self.add_pem(&pem);
            }
        }
    }

    /// Trusts the certificates in `pem`, ignores everything else in it, and returns the number of
    /// certificates.
    pub fn add_pem(&mut self, pem: &[u8]) -> usize {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .filter_map(Result::ok)
            .filter(|der| x509_parser::parse_x509_certificate(der).is_ok())
            .collect();
        let count = certificates.len();
        for certificate in certificates {
            self.add_certificate(certificate);
        }
        count
    }
}

/// Returns the non-hidden files in `folder`, sorted by name.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let list = |source| TlsError::File {
        action: "Error listing files in",
        path: folder.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if !is_hidden(&path) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_limited(File::open(path)?, MAX_ROOTS_BYTES)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pem(name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn every_visible_file_of_a_mounted_secret_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("..2024_01_01");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("ca.pem"), pem("a") + &pem("b")).unwrap();
        symlink("..2024_01_01", folder.path().join("..data")).unwrap();
        symlink("..data/ca.pem", folder.path().join("ca.pem")).unwrap();
        fs::write(folder.path().join("no-extension"), format!("text\n{}", pem("c"))).unwrap();
        fs::write(folder.path().join(".hidden"), pem("d")).unwrap();
        fs::create_dir(folder.path().join("folder.pem")).unwrap();
        symlink("nowhere", folder.path().join("dangling.pem")).unwrap();

        let mut roots = TrustedRoots::none();
        roots.add_dir(folder.path()).unwrap();
        assert_eq!((roots.exact.len(), roots.issuers.len()), (3, 3));

        let mut roots = TrustedRoots::none();
        roots.add_optional_dir(folder.path());
        assert_eq!((roots.exact.len(), roots.issuers.len()), (3, 3));
    }

    #[test]
    fn files_without_certificates_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(folder.path().join("broken"), broken).unwrap();
        fs::write(folder.path().join("cut"), &pem("a")[..200]).unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::write(folder.path().join("key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        fs::write(folder.path().join("mixed"), format!("{broken}{}", pem("b"))).unwrap();
        let mut roots = TrustedRoots::none();
        roots.add_dir(folder.path()).unwrap();
        assert_eq!(roots.exact.len(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_an_error_unless_optional() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let mut roots = TrustedRoots::none();
        let error = roots.add_dir(&missing).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("Error listing files in {}: ", missing.display())),
            "{error}"
        );
        roots.add_optional_dir(&missing);
        assert!(roots.exact.is_empty());
    }

    #[test]
    fn a_file_that_is_too_long_is_no_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        File::create(&path).unwrap().set_len(MAX_ROOTS_BYTES + 1).unwrap();
        fs::write(folder.path().join("ca.crt"), pem("a")).unwrap();
        let mut roots = TrustedRoots::none();
        roots.add_dir(folder.path()).unwrap();
        assert_eq!(roots.exact.len(), 1);
    }
}
