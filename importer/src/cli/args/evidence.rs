//! The options that show who published an image.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Evidence of an image's publisher, besides `--verify-key` of container images.
#[derive(Debug, Clone, Args)]
pub struct EvidenceArgs {
    /// Fail unless the image has the checksum that this list has for it: a file or http(s) URL
    /// with lines of sha256sum or sha512sum (SHA256SUMS, CHECKSUM)
    #[arg(long, value_name = "URL|FILE", conflicts_with = "checksum", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub verify_sums: Option<String>,

    /// Fail unless a key of this file (OpenPGP, binary or armored) has signed the list of
    /// --verify-sums, or the image
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub keyring: Option<PathBuf>,

    /// Detached signature of the list, or of the image if there is no list [default: the list with
    /// .gpg, .sign or .asc]
    #[arg(long, value_name = "URL|FILE", requires = "keyring", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub signature: Option<String>,
}
