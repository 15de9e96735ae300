//! Options for the certificate of a server.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The server's certificate: either two files, or a directory in which the server creates its own.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Use the certificates in this directory (ca.crt, server.crt, server.key, client.crt,
    /// client.key), created if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["cert", "key"], help_heading = "TLS")]
    pub self_signed: Option<PathBuf>,

    /// Server certificate to show to clients (PEM)
    #[arg(long, alias = "tls-cert", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key", help_heading = "TLS")]
    pub cert: Option<PathBuf>,

    /// Key of the server certificate (PEM)
    #[arg(long, alias = "tls-key", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert", help_heading = "TLS")]
    pub key: Option<PathBuf>,
}
