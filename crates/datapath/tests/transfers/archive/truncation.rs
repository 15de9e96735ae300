//! Checks that a truncated archive is an error, unless it is cut between two entries.

use std::collections::BTreeSet;

use testkit::tools;

use crate::archive::tape::{Fields, Tape};
use crate::archive::{refusal, snapshot, unpack_to};
use crate::common::fast_folder;

/// Returns an archive with entries of all kinds, and the offsets at which each of them begins.
fn archive() -> (Vec<u8>, BTreeSet<usize>) {
    let long_name = |tape: Tape, name: &str| {
        let mut fields = Fields::new(b'L', "././@LongLink");
        fields.size = name.len() as u64 + 1;
        let data = [name.as_bytes(), b"\0"].concat();
        tape.entry(&fields, &data)
    };
    let mut boundaries = BTreeSet::new();
    let mut tape = Tape::default();
    let steps: [&dyn Fn(Tape) -> Tape; 8] = [
        &|tape| tape.file("first", &[1; 700]),
        &|tape| tape.directory("d", 0o755),
        &|tape| tape.file("empty", b""),
        &|tape| tape.pax(&[("path", "d/renamed"), ("mtime", "1.5")]).file("x", &[2; 512]),
        &|tape| long_name(tape, &"long-".repeat(30)).file("x", &[3; 1]),
        &|tape| tape.symlink("link", "target"),
        &|tape| tape.hard_link("d/again", "first"),
        &|tape| {
            let data = [&b"1\n512\n3\n"[..], &[0; 504], b"abc"].concat();
            let records = [
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.minor", "0"),
                ("GNU.sparse.realsize", "1000"),
            ];
            tape.pax(&records).file("sparse", &data)
        },
    ];
    for step in steps {
        tape = step(tape);
        boundaries.insert(tape.0.len());
    }
    // A single block of zeros is enough if nothing follows it.
    boundaries.insert(tape.0.len() + 512);
    boundaries.insert(tape.0.len() + 1024);
    (tape.end(), boundaries)
}

#[test]
fn truncations_are_detected_unless_they_are_between_entries() {
    let (tar, boundaries) = archive();
    unpack_to(fast_folder().path(), &tar).unwrap();
    let mut accepted = 0;
    for block in (0..=tar.len()).step_by(512) {
        for cut in [block, block + 1, block + 256, block + 511] {
            if cut == 0 || cut > tar.len() {
                continue;
            }
            let folder = fast_folder();
            match unpack_to(folder.path(), &tar[..cut]) {
                Ok(_) => {
                    assert!(boundaries.contains(&cut), "a false success after {cut:#x} bytes");
                    accepted += 1;
                }
                Err(error) => {
                    assert!(!boundaries.contains(&cut), "after {cut:#x} bytes: {error}");
                    let left = snapshot::of(folder.path()).len() - 1;
                    assert_eq!(left, 0, "something is left after {cut:#x} bytes");
                }
            }
        }
    }
    assert_eq!(accepted, boundaries.len());
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn a_truncated_compressed_archive_is_an_error_even_if_its_tar_is_complete() {
    let (tar, _) = archive();
    for program in tools::COMPRESSORS {
        let packed = tools::filter(program, ["-c"], &tar);
        unpack_to(fast_folder().path(), &packed).unwrap();
        for cut in 1..8 {
            let folder = fast_folder();
            unpack_to(folder.path(), &packed[..packed.len() - cut]).unwrap_err();
            assert_eq!(snapshot::of(folder.path()).len(), 1);
        }
    }
}

#[test]
fn any_changed_bit_in_a_header_is_detected() {
    let tar = Tape::default().file("name", b"content").end();
    for bit in 0..512 * 8 {
        let mut damaged = tar.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Err(error) = unpack_to(fast_folder().path(), &damaged) else {
            // The character that ends a number may be any, and spaces in the checksum field are
            // ignored.
            assert!((148..156).contains(&(bit / 8)), "the change of bit {bit} is accepted");
            continue;
        };
        refusal(&error);
    }
}
