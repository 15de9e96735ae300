//! The command line.

use testkit::process::Program;
use testkit::shells::assert_completion;
use testkit::terminal::Terminal;

#[test]
fn a_stream_is_not_written_to_a_terminal() {
    let terminal = Terminal::open(120);
    let finished = Program::new(crate::BINARY).args(["pack", "."]).start_on(&terminal).wait();
    assert_eq!(finished.code(), 2);
    assert!(terminal.screen().contains("the stream is binary"), "{}", terminal.screen());
}

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
