//! Tests with the output of command-line tools, which `ci/packages` lists.

use stream::memory::{PROCESS_BYTES, RESERVE_BYTES};

use super::super::open_layers;
use super::*;

/// Returns the output of `command`, a program and its flags, for `data` on its standard input.
pub(super) fn run(command: &str, data: &[u8]) -> Vec<u8> {
    let mut words = command.split(' ');
    testkit::tools::filter(words.next().unwrap(), words, data)
}

#[test]
#[ignore = "slow: 3 s of CPU time"]
fn the_output_of_command_line_tools_is_read() {
    let data = sample(1_000_003);
    for (codec, command) in [
        (Codec::Gzip, "gzip -c"),
        (Codec::Gzip, "gzip -1 -n -c"),
        (Codec::Xz, "xz -c"),
        (Codec::Xz, "xz -9 --check=sha256 -c"),
        (Codec::Xz, "xz -1 --check=none -c"),
        (Codec::Xz, "xz -T2 --block-size=65536 -c"),
        (Codec::Xz, "xz --x86 --delta=dist=4 --lzma2 -c"),
        (Codec::Zstd, "zstd -c"),
        (Codec::Zstd, "zstd -19 --no-check -c"),
        (Codec::Zstd, "zstd --long=27 -c"),
        (Codec::Zstd, "zstd -T2 -B65536 -c"),
        (Codec::Bzip2, "bzip2 -c"),
        (Codec::Bzip2, "bzip2 -1 -c"),
    ] {
        let packed = run(command, &data);
        let found = open_layers(pieces(&packed, &[10_000]), &DecodeLimits::default()).unwrap();
        assert_eq!(found.layers, [codec], "{command}");
        assert!(read_all(found.stream).unwrap() == data, "{command}");

        // The tools agree that two copies of a file are twice the data.
        let unpacked = unpack(codec, &packed.repeat(2)).unwrap();
        assert!(unpacked == run(&format!("{codec} -d -c"), &packed.repeat(2)), "{command}");
    }
}

#[test]
#[ignore = "tools: zstd"]
fn a_window_larger_than_the_memory_of_a_process_is_refused() {
    // The tool cannot know how little data its pipe will bring, so it announces the requested
    // window.
    let packed = run("zstd --long=28 -c", b"small");
    match unpack(Codec::Zstd, &packed) {
        Err(DecodeError::Memory { exceeded, .. }) => {
            assert!(exceeded.needed > 256 << 20, "{exceeded}");
            assert_eq!(exceeded.limit, PROCESS_BYTES - RESERVE_BYTES);
        }
        other => panic!("{other:?}"),
    }
}
