//! Shell completion of the command line.

use testkit::shells::assert_completion;

#[test]
#[ignore = "server: fish, zsh"]
fn shells_complete_subcommands_options_and_values() {
    for (arguments, expected) in [
        (&[""][..], &["clone", "completions", "help", "man", "pack", "serve"][..]),
        (&["clone", "--cacert"], &["--cacert"]),
        (&["clone", "--encoding", ""], &["auto", "snappy", "zstd"]),
        (&["pack", "--encoding", ""], &["plain", "snappy", "zstd"]),
        (&["clone", "--cert", "Cargo"], &["Cargo.toml"]),
    ] {
        assert_completion(crate::BINARY, arguments, expected);
    }
}
