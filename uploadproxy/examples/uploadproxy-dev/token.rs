//! `token`: makes the token that CDI's API server makes for
//! `kubectl create -f upload-token-request.yaml`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use uploadproxy::{KeyError, UploadGrant};

use crate::args::TokenArgs;

/// The reason why a token could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFailed {
    #[error("cannot read {}: {source}; check the path", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the key in {}: {source}; give a private key (RSA, PEM)", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("cannot print the token: {0}")]
    Print(#[from] io::Error),
}

impl TokenFailed {
    /// Returns true if a file is missing, or the key in it cannot be used.
    pub(super) fn is_about_files(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Key { .. })
    }
}

/// Prints a token for the PVC in `arguments`.
pub(super) fn run(arguments: &TokenArgs) -> Result<(), TokenFailed> {
    let grant = UploadGrant { namespace: arguments.namespace.clone(), pvc: arguments.pvc.clone() };
    let key = read(&arguments.key)?;
    let token = mint(&key, &grant, arguments.lifetime.0);
    let token = token.map_err(|source| TokenFailed::Key { path: arguments.key.clone(), source })?;
    Ok(program::command_line::print_stdout(format!("{token}\n").as_bytes())?)
}

/// Returns a token as CDI's API server makes it, valid from now on for `lifetime`. It is signed
/// with the private key in `pem`.
pub(super) fn mint(pem: &str, grant: &UploadGrant, lifetime: Duration) -> Result<String, KeyError> {
    let key = EncodingKey::from_rsa_pem(pem.as_bytes())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = json!({
        "iss": "cdi-apiserver",
        "iat": now.as_secs(),
        "nbf": now.as_secs(),
        "exp": now.saturating_add(lifetime).as_secs(),
        "operation": "Upload",
        "name": grant.pvc,
        "namespace": grant.namespace,
        "resource": { "group": "", "version": "v1", "resource": "persistentvolumeclaims" },
    });
    let header = Header::new(Algorithm::PS256);
    Ok(jsonwebtoken::encode(&header, &claims, &key)?)
}

/// Reads a file as text.
pub(super) fn read(path: &Path) -> Result<String, TokenFailed> {
    std::fs::read_to_string(path)
        .map_err(|source| TokenFailed::Read { path: path.to_owned(), source })
}
