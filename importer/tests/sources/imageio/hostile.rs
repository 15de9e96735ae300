//! Engines and image servers with wrong data: an error, no disk, and a closed transfer.

use bytes::Bytes;
use testkit::cases::check_all;
use testkit::disk;
use testkit::ovirt::{DISK_ID, Engine, Extents, Script};

use crate::imageio::{MIB, Place, assert_ended, raw_disk};

const DISK_BYTES: u64 = 4 * MIB;

#[test]
fn invalid_extents_are_refused() {
    let extent = |start: i128, length: i128| {
        format!(r#"{{"start":{start},"length":{length},"zero":false,"hole":false}}"#)
    };
    let list = |extents: &[String]| format!("[{}]", extents.join(","));
    let half = i128::from(DISK_BYTES / 2);
    let whole = 2 * half;
    let lists = [
        ("overlap", list(&[extent(0, half + 512), extent(half, half)])),
        ("gap", list(&[extent(0, half - 512), extent(half, half)])),
        ("beyond the disk", list(&[extent(0, whole), extent(whole, 512)])),
        ("short of the disk", list(&[extent(0, half)])),
        ("unsorted", list(&[extent(half, half), extent(0, half)])),
        ("negative start", list(&[extent(-512, whole)])),
        ("negative length", list(&[extent(0, whole), extent(whole, -512)])),
        ("beyond 64 bits", list(&[extent(0, 1 << 65)])),
        (
            "a sum beyond 64 bits",
            list(&[extent(0, i128::from(u64::MAX)), extent(i128::from(u64::MAX), 512)]),
        ),
        ("empty extents", list(&[extent(0, 0), extent(0, whole)])),
        ("no extents", "[]".to_owned()),
        ("no list", "{}".to_owned()),
        ("no JSON", "<html>".to_owned()),
        ("nothing", String::new()),
        ("deep", "[".repeat(100_000)),
        ("cut", list(&[extent(0, whole)])[..20].to_owned()),
        ("the wrong types", r#"[{"start":"0","length":"4194304","zero":"no"}]"#.to_owned()),
    ];
    check_all(lists.map(|(name, text)| Lie(name, text.into())), |Lie(_, text)| {
        let place = Place::new();
        let engine = Engine::start(Script {
            extents: Extents::Said(text.clone()),
            ..raw_disk(disk::content(1, DISK_BYTES))
        });
        let finished = place.assert_refused(place.import(&engine), "extents");
        assert!(finished.stderr.len() < 4096, "{} bytes of words", finished.stderr.len());
        assert_ended(&engine, "finished_success");
    });
}

struct Lie(&'static str, Bytes);

impl std::fmt::Display for Lie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

#[test]
#[ignore = "slow: 5 s of CPU time"]
fn long_lists_of_extents_take_bounded_memory() {
    // An extent for each sector: as fragmented as a disk can be, and more than is kept.
    for (sectors, shortest) in [(150_000_u64, false), (1_000_000, false), (300_000, true)] {
        let length = 512;
        let extents: Vec<String> = (0..sectors)
            .map(|n| match shortest {
                true => format!(r#"{{"start":{},"length":512,"zero":{}}}"#, n * length, n % 2 == 1),
                false => format!(
                    r#"{{"start": {}, "length": 512, "zero": {}, "hole": false}}"#,
                    n * length,
                    n % 2 == 1
                ),
            })
            .collect();
        let place = Place::new();
        let mut raw = vec![0; usize::try_from(sectors * length).unwrap()];
        for sector in raw.chunks_mut(1024) {
            sector[..512].fill(0x5A);
        }
        let engine = Engine::start(Script {
            extents: Extents::Said(format!("[{}]", extents.join(",")).into()),
            ..raw_disk(raw.clone())
        });
        let finished = place.import(&engine).run();
        finished.assert_success("a fragmented disk");
        place.assert_disk(&raw);
    }
}

#[test]
fn malicious_documents_of_a_disk_are_refused() {
    let mut bomb = String::from("<!DOCTYPE x [<!ENTITY a0 \"ha\">");
    for n in 1..30 {
        let before = n - 1;
        bomb += &format!("<!ENTITY a{n} \"&a{before};&a{before};\">");
    }
    let disk =
        |size: &str| format!("<disk id=\"{DISK_ID}\"><total_size>{size}</total_size></disk>");
    let documents = [
        ("a bomb", format!("{bomb}]>{}", disk("&a29;"))),
        (
            "a file",
            format!("<!DOCTYPE x [<!ENTITY f SYSTEM \"file:///etc/passwd\">]>{}", disk("&f;")),
        ),
        ("10 MB", format!("<disk><name>{}</name></disk>", "x".repeat(10 << 20))),
        ("a million elements", format!("<disk>{}</disk>", "<a/>".repeat(1_000_000))),
        ("depth", "<a>".repeat(1_000_000)),
        ("the wrong root", "<html><body>log in</body></html>".to_owned()),
        ("no XML", "log in".to_owned()),
        ("nothing", String::new()),
        ("no size", disk("")),
        ("a negative size", disk("-1")),
        ("cut", disk("512")[..30].to_owned()),
    ];
    check_all(documents.map(|(name, text)| Lie(name, text.into())), |Lie(_, text)| {
        let place = Place::new();
        let path = format!("GET /ovirt-engine/api/disks/{DISK_ID}");
        let engine = Engine::start(Script {
            documents: [(path, text.clone())].into(),
            ..raw_disk(disk::content(1, DISK_BYTES))
        });
        let finished = place.assert_refused(place.import(&engine), "");
        assert!(finished.stderr.len() < 4096, "{} bytes of words", finished.stderr.len());
        assert!(engine.is_logged_out(), "{:?}", engine.calls());
    });
}

#[test]
fn unusable_transfers_are_refused() {
    let transfer = |inner: &str| {
        format!("<image_transfer id=\"t\"><phase>transferring</phase>{inner}</image_transfer>")
    };
    let documents = [
        ("no id", "<image_transfer><phase>transferring</phase></image_transfer>".to_owned()),
        ("no phase", "<image_transfer id=\"t\"/>".to_owned()),
        ("no URL", transfer("")),
        ("a file", transfer("<transfer_url>file:///etc/passwd</transfer_url>")),
        ("no address", transfer("<transfer_url>http://</transfer_url>")),
        ("not XML", "x".to_owned()),
    ];
    check_all(documents.map(|(name, text)| Lie(name, text.into())), |Lie(_, text)| {
        let place = Place::new();
        let engine = Engine::start(Script {
            documents: [("POST /ovirt-engine/api/imagetransfers".to_owned(), text.clone())].into(),
            ..raw_disk(disk::content(1, DISK_BYTES))
        });
        place.assert_refused(place.import(&engine), "");
        assert!(engine.is_logged_out(), "{:?}", engine.calls());
    });
}

#[test]
fn malformed_tokens_are_refused() {
    for (name, text) in [
        ("no token", "{}"),
        ("no JSON", "<html>"),
        ("a header of its own", r#"{"access_token":"x\r\nX-Evil: 1"}"#),
    ] {
        let place = Place::new();
        let engine = Engine::start(Script {
            documents: [("POST /ovirt-engine/sso/oauth/token".to_owned(), text.into())].into(),
            ..raw_disk(disk::content(1, DISK_BYTES))
        });
        let finished = place.import(&engine).run();
        assert!(!finished.crashed() && finished.code() == 3, "{name}: {finished:?}");
    }
}
