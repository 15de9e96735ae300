//! `token`: makes what CDI's API server makes for `kubectl create -f upload-token-request.yaml`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::args::TokenArgs;
use crate::token::{self, Grant, KeyError};

/// A token that could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFailed {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the key in {}: {source}", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("cannot print the token: {0}")]
    Print(#[from] io::Error),
}

/// Prints a token.
pub(super) fn run(arguments: &TokenArgs) -> Result<(), TokenFailed> {
    let grant = Grant {
        namespace: arguments.namespace.clone(),
        pvc: arguments.pvc.clone(),
    };
    let key = read(&arguments.key)?;
    let token = token::mint(&key, &grant, SystemTime::now(), arguments.lifetime.0);
    let token = token.map_err(|source| TokenFailed::Key {
        path: arguments.key.clone(),
        source,
    })?;
    Ok(program::command_line::print(format!("{token}\n").as_bytes())?)
}

/// A file as text.
pub(super) fn read(path: &Path) -> Result<String, TokenFailed> {
    std::fs::read_to_string(path).map_err(|source| TokenFailed::Read {
        path: path.to_owned(),
        source,
    })
}
