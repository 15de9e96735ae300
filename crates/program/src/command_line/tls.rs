//! Options for the certificate of a server.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The certificate of a server: two files, or a folder in which it makes its own.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Use the certificates in this folder: ca.crt, server.crt, server.key, client.crt and client.key. They are made if
    /// they are not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["tls_cert", "tls_key"], help_heading = "TLS")]
    pub self_signed: Option<PathBuf>,

    /// The certificate that clients are shown (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key", help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,
}
