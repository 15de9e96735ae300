//! Honest servers: the bytes that arrive are those that they serve.

use testkit::nbd::{NbdServer, TcpNbdServer};
use testkit::nbd_proxy::NbdProxy;

use super::*;

const LENGTH: u64 = 40 << 20;

#[test]
#[ignore = "server: nbdkit"]
fn every_server_delivers_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = sparse_disk(folder.path(), LENGTH);
    let file = format!("file={}", text(&path));
    let servers = [
        NbdServer::qemu(["--format=raw".to_owned(), text(&path)]),
        NbdServer::nbdkit(["file", &file]),
        NbdServer::nbdkit(["--no-sr", "file", &file]),
        NbdServer::nbdkit(["--filter=noextents", "file", &file]),
        NbdServer::nbdkit(["--filter=nozero", "--filter=noparallel", "file", &file]),
        NbdServer::nbdkit(["--filter=delay", "file", &file, "rdelay=1ms"]),
        NbdServer::nbdkit([
            "--filter=blocksize-policy",
            "file",
            &file,
            "blocksize-minimum=4096",
            "blocksize-preferred=64K",
            "blocksize-maximum=256K",
            "blocksize-error-policy=error",
        ]),
        NbdServer::nbdkit(["--filter=swab", "--filter=swab", "file", &file, "swab-bits=64"]),
    ];
    for (index, server) in servers.iter().enumerate() {
        for count in [1, 3] {
            let received = fetch_with(&server.uri(""), &connections(count)).unwrap();
            assert!(received.bytes == bytes, "server {index}, {count} connections");
        }
    }
}

#[test]
#[ignore = "server: nbdkit"]
fn export_names_and_odd_sizes_are_supported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![5; 1_000_448]).unwrap();
    let args = ["--format=raw".to_owned(), "--export-name=a b".to_owned(), text(&path)];
    let server = TcpNbdServer::qemu(args);
    let source = open(&server.uri("a%20b")).unwrap();
    assert_eq!(source.total_bytes(), Some(1_000_448));
    assert!(source.is_ranged() && source.name() == server.uri("a%20b"));
    assert!(receive(&mut *source.open_body().unwrap()).unwrap().bytes == vec![5; 1_000_448]);
    let message = failure(&server.uri("other"));
    assert!(message.contains(": the NBD server has no export \"other\""), "{message}");
    let empty = NbdServer::nbdkit(["null", "0"]);
    assert!(fetch(&empty.uri("")).unwrap().bytes.is_empty());
    let odd = NbdServer::nbdkit(["pattern", "1000001"]);
    assert_eq!(fetch(&odd.uri("")).unwrap().bytes.len(), 1_000_001);
    let aligned = NbdServer::nbdkit([
        "--filter=blocksize-policy",
        "pattern",
        "1M",
        "blocksize-minimum=4096",
        "blocksize-error-policy=error",
    ]);
    let source = open(&aligned.uri("")).unwrap();
    let part = source.read_range(5001..9003).unwrap();
    // The plugin's bytes: each 8-byte word is its own offset.
    assert_eq!(part[7..15], 5008u64.to_be_bytes());
    assert_eq!(part.len(), 4002);
}

#[test]
#[ignore = "server: nbdkit"]
fn holes_are_not_transferred() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(3 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &disk::content(1, 1 << 20), 1 << 30).unwrap();
    let raw = NbdServer::qemu(["--format=raw".to_owned(), text(&path)]);
    let kit = NbdServer::nbdkit(["file".to_owned(), format!("file={}", text(&path))]);
    for server in [&raw, &kit] {
        let proxy = NbdProxy::start(&server.socket(), Vec::new()).unwrap();
        let source = open(&proxy.uri("")).unwrap();
        let mut body = source.open_body().unwrap();
        let (mut total, mut data) = (0u64, 0u64);
        while let Some(chunk) = body.next_chunk().unwrap() {
            total += chunk.len() as u64;
            data += chunk.iter().filter(|byte| **byte != 0).count() as u64;
        }
        assert_eq!(total, 3 << 30);
        assert!(data > 1_000_000, "{data}");
        assert!(proxy.bytes() < (1 << 20) + 10_000, "{}", proxy.bytes());
    }
}

#[test]
#[ignore = "server: nbdkit"]
fn several_connections_are_used_if_the_server_allows_them() {
    let connections_with = |args: &[&str]| {
        let server = NbdServer::nbdkit(args.iter().copied());
        let proxy = NbdProxy::start(&server.socket(), Vec::new()).unwrap();
        let received = fetch_with(&proxy.uri(""), &connections(4)).unwrap();
        assert_eq!(received.bytes.len(), 64 << 20);
        let same = received.bytes.chunks(8).enumerate();
        assert!(
            same.into_iter().all(|(index, word)| word == (index as u64 * 8).to_be_bytes()),
            "{args:?}"
        );
        proxy.connections()
    };
    assert_eq!(connections_with(&["pattern", "64M"]), 4);
    let alone = ["--filter=multi-conn", "pattern", "64M", "multi-conn-mode=disable"];
    assert_eq!(connections_with(&alone), 1);
}

#[test]
#[ignore = "server: nbdkit"]
fn ranges_can_be_read_and_bytes_skipped() {
    let server = NbdServer::nbdkit(["pattern", "64M"]);
    let proxy = NbdProxy::start(&server.socket(), Vec::new()).unwrap();
    let source = open(&proxy.uri("")).unwrap();
    for start in [0u64, 8, 5 << 20, 63 << 20] {
        let bytes = source.read_range(start..start + (1 << 20)).unwrap();
        assert_eq!(bytes[..8], start.to_be_bytes());
        assert_eq!(bytes[bytes.len() - 8..], (start + (1 << 20) - 8).to_be_bytes());
    }
    assert!(source.read_range(5..5).unwrap().is_empty());
    assert!(source.read_range(0..(64 << 20) + 1).is_err());
    assert_eq!(proxy.connections(), 2, "one for the body, one for all ranges");

    let mut body = source.open_body().unwrap();
    assert_eq!(body.next_chunk().unwrap().unwrap()[..8], 0u64.to_be_bytes());
    for offset in [1u64 << 20, (3 << 20) + 4096, 40 << 20] {
        body.skip_to(offset).unwrap();
        assert_eq!(body.next_chunk().unwrap().unwrap()[..8], offset.to_be_bytes());
    }
    assert!(body.skip_to(8).is_err());
    body.skip_to((64 << 20) - 16).unwrap();
    assert_eq!(receive(&mut *body).unwrap().bytes.len(), 16);
}
