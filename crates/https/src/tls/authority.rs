//! A local certificate authority for a developer's machine or a test cluster. It issues
//! certificates for one server and one client.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use super::TlsError;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Time by which certificates are backdated, because the clocks of client and server may differ.
const BACKDATED: Duration = DAY;

/// Validity of the certificates. Browsers and curl accept server certificates that are valid for
/// up to 398 days.
const LIFETIME: Duration = DAY.saturating_mul(365);

/// The paths of an authority's files in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// The authority's certificate, which servers and clients trust.
    pub ca: PathBuf,
    /// The server's certificate and key.
    pub server: (PathBuf, PathBuf),
    /// The client's certificate and key.
    pub client: (PathBuf, PathBuf),
}

impl AuthorityFiles {
    /// Returns the paths in `dir`; the file names are fixed.
    pub fn in_dir(dir: &Path) -> Self {
        let pair = |name: &str| (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        Self { ca: dir.join("ca.crt"), server: pair("server"), client: pair("client") }
    }

    /// Like [`Self::in_dir`], but creates the files if any of them is missing. The certificates
    /// are for a server on this machine and a client called `client_name`.
    pub fn made_in(dir: &Path, client_name: &str) -> Result<Self, TlsError> {
        std::fs::create_dir_all(dir).map_err(|source| write_error(dir, source))?;
        let files = Self::in_dir(dir);
        let Self { ca, server, client } = &files;
        if [ca, &server.0, &server.1, &client.0, &client.1].iter().all(|path| path.exists()) {
            return Ok(files);
        }
        // Clients reach the server by one of these names, or by the host name.
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.push(name.trim().to_owned());
        }
        files.create_files(&names, client_name)?;
        tracing::info!("created certificates in {}", dir.display());
        Ok(files)
    }

    /// Creates a new authority, a certificate for a server with `names`, and a certificate for a
    /// client called `client_name`. The authority's own key is discarded, so it cannot sign any
    /// other certificate.
    pub fn create_files(&self, names: &[String], client_name: &str) -> Result<(), TlsError> {
        let mut params = certificate_params("cdi-workers local authority", &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let server =
            sign_leaf("localhost", names, ExtendedKeyUsagePurpose::ServerAuth, &authority)?;
        let client = sign_leaf(client_name, &[], ExtendedKeyUsagePurpose::ClientAuth, &authority)?;
        write_file(&self.ca, 0o644, &authority.pem())?;
        for (files, (certificate, key)) in [(&self.server, server), (&self.client, client)] {
            write_file(&files.0, 0o644, &certificate)?;
            write_private(&files.1, &key)?;
        }
        Ok(())
    }
}

/// Returns the parameters of a certificate that is valid from one day ago until one year from now.
pub(super) fn certificate_params(
    common_name: &str,
    names: &[String],
) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + LIFETIME).into();
    Ok(params)
}

/// Creates a certificate and its key, both as PEM.
fn sign_leaf(
    common_name: &str,
    names: &[String],
    purpose: ExtendedKeyUsagePurpose,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> Result<(String, String), TlsError> {
    let mut params = certificate_params(common_name, names)?;
    params.extended_key_usages = vec![purpose];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    write_file(path, 0o600, text)
}

fn write_file(path: &Path, mode: u32, text: &str) -> Result<(), TlsError> {
    let write = || -> io::Result<()> {
        // An existing file is removed first, because other users might be able to read it.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        // Files in a user's profile are private on Windows.
        #[cfg(not(unix))]
        let _ = mode;
        let mut file = options.open(path)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(|source| write_error(path, source))
}

fn write_error(path: &Path, source: io::Error) -> TlsError {
    TlsError::File { action: "cannot write", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::tls::{ServerFiles, TlsProfile, common_name};

    #[test]
    fn the_files_make_a_server_and_a_client_with_a_name_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let files = AuthorityFiles::in_dir(dir.path());
        let client_name = format!("ns/{}-other/name", "n".repeat(200));
        files.create_files(&["localhost".to_owned()], &client_name).unwrap();
        for key in [&files.server.1, &files.client.1] {
            assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let client = CertificateDer::from_pem_file(&files.client.0).unwrap();
        assert_eq!(common_name(&client), Some(client_name));
        let server = ServerFiles {
            certificate: files.server.0,
            key: files.server.1,
            client_ca: Some(files.ca),
        };
        server.server_config(&TlsProfile::default()).unwrap();
    }
}
