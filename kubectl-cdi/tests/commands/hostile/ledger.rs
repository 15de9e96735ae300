//! The ledger: only its owner may read it, and nothing else may be in its place.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use testkit::adversary::Reply;
use testkit::fail::OrFail;
use testkit::wait;
use testkit::wire::Request;

use crate::hostile::{Cluster, Laptop, UPLOADS, mode};

const NAME: &str = "0a1b-2c.upload";

/// Returns a laptop whose proxy accepts an upload, and never answers to its data.
fn silent_laptop() -> Laptop {
    Laptop::with_proxy(Cluster::harmless(), |request| match request.method.as_str() {
        "POST" => Reply::status(201, "").with("Location", format!("{UPLOADS}/a1")),
        _ => Reply::silence(),
    })
}

fn make_fifo(laptop: &Laptop) {
    let path = laptop.ledgers().join(NAME);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).or_fail("a FIFO");
}

fn wait_for_requests(laptop: &Laptop, count: usize) {
    let complaint = || format!("{:?}", laptop.proxy.requests());
    wait::until(complaint, || laptop.proxy.requests().len() >= count);
}

#[test]
fn a_ledger_is_readable_only_by_its_owner() {
    // As another version has left them.
    let laptop = silent_laptop();
    let ledger = laptop.ledgers().join(NAME);
    fs::create_dir(laptop.ledgers()).unwrap();
    fs::write(&ledger, "").unwrap();
    for (path, old) in [(laptop.ledgers(), 0o755), (ledger.clone(), 0o644)] {
        fs::set_permissions(path, PermissionsExt::from_mode(old)).unwrap();
    }
    assert_eq!(modes_while_uploading(&laptop), (0o700, 0o600));
    // A new folder and a new ledger.
    fs::remove_dir_all(laptop.path("home/.local")).unwrap();
    assert_eq!(modes_while_uploading(&laptop), (0o700, 0o600));
}

/// Returns the permissions of folder and ledger during an upload, which a signal then ends.
fn modes_while_uploading(laptop: &Laptop) -> (u32, u32) {
    let before = laptop.proxy.requests().len();
    let running = laptop.upload("60s").start();
    wait_for_requests(laptop, before + 1);
    let ledger = laptop.ledgers().join(NAME);
    wait::until(
        || "no ledger".to_owned(),
        || fs::metadata(&ledger).is_ok_and(|file| file.len() > 0),
    );
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    (mode(&laptop.ledgers()), mode(&ledger))
}

/// Puts something else in the place of the ledger.
type Make = fn(&Laptop);

#[test]
fn other_things_in_the_place_of_a_ledger_are_not_touched() {
    let places: [(&str, Make); 4] = [
        ("a link to a file", |laptop| {
            symlink(laptop.path("home/.bashrc.d/x.upload"), laptop.ledgers().join(NAME))
                .or_fail("a link");
        }),
        ("a link to nothing", |laptop| {
            symlink(laptop.path("home/.bashrc.d/new"), laptop.ledgers().join(NAME))
                .or_fail("a link");
        }),
        ("a FIFO", make_fifo),
        ("a folder", |laptop| fs::create_dir(laptop.ledgers().join(NAME)).or_fail("a folder")),
    ];
    for (what, make) in places {
        let laptop = Laptop::new(Cluster::harmless());
        fs::create_dir(laptop.ledgers()).unwrap();
        make(&laptop);
        let before = (laptop.files(), kind(&laptop));
        let finished = laptop.upload("5s").run();
        finished.assert_failure(4, "the upload server rejected the image: ");
        let sentence = "no other process can continue this upload: ";
        assert!(finished.stderr.contains(sentence), "{what}: {}", finished.stderr);
        assert!((laptop.files(), kind(&laptop)) == before, "{what}: something was changed");
    }
}

fn kind(laptop: &Laptop) -> fs::FileType {
    let metadata = fs::symlink_metadata(laptop.ledgers().join(NAME));
    metadata.or_fail(NAME).file_type()
}

#[test]
fn a_folder_of_another_user_or_behind_a_link_holds_no_ledger() {
    for is_link in [true, false] {
        let laptop = Laptop::new(Cluster::harmless());
        let elsewhere = laptop.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        match is_link {
            true => symlink(&elsewhere, laptop.ledgers()).unwrap(),
            false => {
                fs::create_dir(laptop.ledgers()).unwrap();
                std::os::unix::fs::chown(laptop.ledgers(), Some(65_534), None).unwrap();
            }
        }
        let finished = laptop.upload("5s").run();
        finished.assert_failure(4, "the upload server rejected the image: ");
        let sentence = "no other process can continue this upload: ";
        assert!(finished.stderr.contains(sentence), "{}", finished.stderr);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

#[test]
fn a_signal_ends_an_upload_whatever_is_in_the_place_of_its_ledger() {
    let laptop = silent_laptop();
    fs::create_dir(laptop.ledgers()).unwrap();
    make_fifo(&laptop);
    let running = laptop.upload("60s").start();
    wait_for_requests(&laptop, 1);
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
}

#[test]
fn an_upload_that_the_server_has_forgotten_starts_over() {
    for status in [404, 410] {
        let is_stale = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_stale);
        let laptop = Laptop::with_proxy(Cluster::harmless(), move |request| {
            let is_stale = seen.load(Ordering::Relaxed);
            match (request.method.as_str(), is_stale) {
                ("POST", _) => {
                    let id = if is_stale { "second" } else { "first" };
                    Reply::status(201, "").with("Location", format!("{UPLOADS}/{id}"))
                }
                (_, false) => Reply::silence(),
                ("HEAD", true) => Reply::status(status, ""),
                (_, true) => Reply::status(400, "refused by the test"),
            }
        });
        modes_while_uploading(&laptop);
        is_stale.store(true, Ordering::Relaxed);
        let finished = laptop.upload("5s").run();
        finished.assert_failure(4, "the upload server rejected the image: ");
        let requests = laptop.proxy.requests();
        let (last, _) = requests.last().or_fail("a request");
        assert_eq!((last.method.as_str(), last.path()), ("PATCH", &*format!("{UPLOADS}/second")));
        assert_eq!(laptop.left(), [], "the ledger of a refused image remains");
    }
}

#[test]
fn a_lost_refusal_is_requested_again() {
    for (code, next, words) in [
        (4, Reply::status(400, "the image is odd"), "rejected the image: the image is odd"),
        (
            7,
            Reply::status(410, ""),
            "the upload has failed: the server answers 410 Gone, at https:",
        ),
    ] {
        let is_lost = AtomicBool::new(false);
        let answer = move |request: &Request| match request.method.as_str() {
            "POST" => Reply::status(201, "").with("Location", format!("{UPLOADS}/a1")),
            "HEAD" => Reply::status(410, ""),
            _ if is_lost.swap(true, Ordering::Relaxed) => next.clone(),
            _ => Reply::status(502, ""),
        };
        let laptop = Laptop::with_proxy(Cluster::harmless(), answer);
        laptop.upload("60s").run().assert_failure(code, words);
        // The ledger of a refused image does not remain.
        assert!(code == 7 || laptop.left().is_empty());
    }
}

#[test]
fn a_kept_part_larger_than_the_disk_is_refused() {
    let laptop = Laptop::with_proxy(Cluster::harmless(), |request| match request.method.as_str() {
        "POST" => {
            let reply = Reply::status(201, "").with("Location", format!("{UPLOADS}/a1"));
            reply.with("x-cdi-kept", u64::MAX.to_string())
        }
        _ => Reply::status(502, ""),
    });
    let finished = laptop.upload("60s").run();
    let words = "reports 18446744073709551615 bytes of a disk that has only 1048576";
    finished.assert_failure(7, words);
}
