//! Typical mistakes on the command line: each has an exit code and says where, why and what to do.

mod damaged;
mod files;
mod options;
mod servers;
mod stores;

use std::net::TcpListener;
use std::path::Path;

use testkit::certs::Authority;
use testkit::docker_registry::{Auth, DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::mistake::MistakeScene;
use testkit::nbd::NbdServer;
use testkit::nginx::Nginx;
use testkit::oci::{Compression, Image, tar, write_layout};
use testkit::tmpfs::Tmpfs;
use testkit::{disk, tools};

const MIB: u64 = 1 << 20;

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images/mistakes");

const PASSWORD: &str = "hunter2";

const PAGE: &[u8] =
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Who?</body></html>\n";

/// Answers of the web server as directives of nginx, each with a status and a body.
const WEB: &str = r#"
    location / { root .; }
    location /forbidden { return 403; }
    location /bad { return 400; }
    location /busy { return 503; }
    location /tea { return 418; }
    location /locked { add_header WWW-Authenticate 'Basic realm="x"' always; return 401; }
    location /loop { return 302 /loop; }
    location /moved { return 302 /gone; }
    location /ftp { return 302 ftp://example.invalid/disk.img; }
    location /page { default_type text/html; return 200 "<!DOCTYPE html><html><head><title>Sign in</title></head></html>"; }
    location /json { default_type application/json; return 200 '{"message":"Not Found"}'; }
    location /nokey { return 404 '<Error><Code>NoSuchKey</Code><Message>no key</Message></Error>'; }
    location /nobucket { return 404 '<Error><Code>NoSuchBucket</Code><Message>no bucket</Message></Error>'; }
    location /denied { return 403 '<Error><Code>AccessDenied</Code><Message>no access</Message></Error>'; }
    location /signature { return 403 '<Error><Code>SignatureDoesNotMatch</Code><Message>bad key</Message></Error>'; }
"#;

#[test]
#[ignore = "root: loop devices, mounts"]
fn mistakes_with_options_have_their_exit_code_and_a_helpful_sentence() {
    check_without_servers(&[
        ("usage", options::USAGE),
        ("values", options::VALUES),
        ("secrets", options::SECRETS),
        ("exclusive-options", options::EXCLUSIVE_OPTIONS),
        ("stray-options", options::STRAY_OPTIONS),
    ]);
}

#[test]
#[ignore = "root: loop devices, mounts"]
fn mistakes_with_files_have_their_exit_code_and_a_helpful_sentence() {
    check_without_servers(&[
        ("sources", files::SOURCES),
        ("foreign-files", files::FOREIGN_FILES),
        ("targets", files::TARGETS),
        ("archives", files::ARCHIVES),
        ("damaged-images", damaged::DAMAGED_IMAGES),
    ]);
}

fn check_without_servers(tables: &[(&str, &[&str])]) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let scene = scene(folder.path());
    write_images(folder.path());
    let device = LoopDevice::empty(folder.path(), MIB, 512);
    let memory = folder.path().join("memory");
    std::fs::create_dir(&memory).or_fail("a folder");
    let _mounted = Tmpfs::on(&memory, 2 * MIB);
    let scene = scene
        .word("device", device.path().display())
        .word("memory", memory.display())
        // No row gets as far as a server.
        .word("http", "http.invalid:80")
        .word("registry", "registry.invalid:80");
    for (name, table) in tables {
        scene.check(name, table);
    }
}

/// One test for all tables, so that servers are started once.
#[test]
#[ignore = "server: docker-registry, htpasswd, nginx"]
fn mistakes_with_servers_have_their_exit_code_and_a_helpful_sentence() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (_servers, scene) = start_servers(folder.path(), scene(folder.path()));
    let (_registries, scene) = start_registries(scene);
    let nbd = NbdServer::qemu(["--format=raw".as_ref(), folder.path().join("raw").as_os_str()]);
    let silent = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let scene = scene
        .word("nbd", nbd.uri("none"))
        .word("silent", silent.local_addr().or_fail("an address"));
    for (name, table) in [
        ("web-servers", servers::WEB_SERVERS),
        ("tls", servers::TLS),
        ("proxies", servers::PROXIES),
        ("nbd-servers", servers::NBD_SERVERS),
        ("registries", stores::REGISTRIES),
        ("object-stores", stores::OBJECT_STORES),
        ("clouds", stores::CLOUDS),
    ] {
        scene.check(name, table);
    }
}

fn scene(folder: &Path) -> MistakeScene {
    write_files(folder);
    MistakeScene::new(crate::BINARY, SNAPSHOTS)
        .secret(PASSWORD)
        .word("space", " ")
        .word("closed", "127.0.0.1:1")
        .word("files", folder.display())
}

/// Writes files that are not what their user takes them for.
fn write_files(folder: &Path) {
    let program = std::fs::read(crate::BINARY).or_fail("a program");
    let raw = disk::content(1, 3 * MIB);
    let gzip = tools::filter("gzip", ["-c"], &raw);
    let xz = tools::filter("xz", ["-c", "-0"], &raw);
    let zstd = tools::filter("zstd", ["-c", "-1"], &raw);
    let bzip2 = tools::filter("bzip2", ["-c", "-1"], &raw);
    let damaged = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0);
        bytes
    };
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let wrapped = tools::filter("gzip", ["-c"], &PAGE.repeat(100));
    let files: &[(&str, Vec<u8>)] = &[
        ("raw", raw.clone()),
        ("empty", Vec::new()),
        ("page.html", PAGE.to_vec()),
        ("page.gz", wrapped),
        ("error.json", b"{\"message\":\"Not Found\"}".to_vec()),
        (
            "pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n".to_vec(),
        ),
        ("vm.ovf", b"<?xml version=\"1.0\"?>\n<Envelope><References/></Envelope>\n".to_vec()),
        ("program.gz", tools::filter("gzip", ["-c"], &program[..1 << 16])),
        ("program", program[..1 << 16].to_vec()),
        ("paper.pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".repeat(100)),
        ("disk.zip", [disk::ZIP_HEADER.to_vec(), disk::content(2, 4096)].concat()),
        ("disk.7z", [b"7z\xBC\xAF\x27\x1C\0\x04".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.rar", [b"Rar!\x1A\x07\x01\0".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.qed", [b"QED\0".to_vec(), disk::content(2, 4096)].concat()),
        ("half.gz", half(&gzip)),
        ("half.xz", half(&xz)),
        ("half.zst", half(&zstd)),
        ("half.bz2", half(&bzip2)),
        ("damaged.gz", damaged(&gzip)),
        ("damaged.xz", damaged(&xz)),
        ("damaged.zst", damaged(&zstd)),
        ("damaged.bz2", damaged(&bzip2)),
        ("disk.ova", tar(&[("vm.ovf", b"<Envelope/>")])),
        ("two.ova", tar(&[("a.raw", &raw), ("b.raw", &raw)])),
        ("half.tar", half(&tar(&[("a", &raw)]))),
        ("up.tar", tools::filter("tar", ["-c", "-P", "-C", "/", "/../etc/hostname"], b"")),
        ("files.tar", tar(&[("a", b"content")])),
        ("docker.tar", tar(&[("manifest.json", b"[]")])),
        ("disk.dmg", [&[0; 4096][..], b"koly\0\0\0\x04\0\0\x02\0", &[0; 500]].concat()),
        ("password", PASSWORD.as_bytes().to_vec()),
        ("header", b"X-Token: hunter2\n".to_vec()),
        ("not-a-header", b"hunter2\n".to_vec()),
        ("key.json", b"{\"type\":\"authorized_user\"}".to_vec()),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).or_fail(name);
    }
    for name in ["directory", "full", "layout", "trusted"] {
        std::fs::create_dir(folder.join(name)).or_fail(name);
    }
    write_layout(&folder.join("layout"), &[program_image()]);
    std::fs::write(folder.join("full/a"), "somebody else's").or_fail("a file");
    std::os::unix::fs::symlink("nowhere", folder.join("dangling")).or_fail("a link");
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).or_fail("a socket"));
}

/// Writes images that are damaged, or need another file or a password.
fn write_images(folder: &Path) {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let raw = path("raw");
    for (format, name) in [
        ("qcow2", "disk.qcow2"),
        ("vmdk", "disk.vmdk"),
        ("vdi", "disk.vdi"),
        ("vpc", "disk.vhd"),
        ("vhdx", "disk.vhdx"),
    ] {
        tools::run("qemu-img", ["convert", "-f", "raw", "-O", format, &raw, &path(name)]);
        let whole = std::fs::read(path(name)).or_fail(name);
        std::fs::write(path(&format!("half-{name}")), &whole[..whole.len() / 2]).or_fail(name);
        let mut damaged = whole;
        damaged[64..1024].fill(0xEE);
        if format == "vpc" {
            // Seconds since 2000, which its checksum covers.
            damaged[24..28].fill(0xEE);
        }
        std::fs::write(path(&format!("damaged-{name}")), damaged).or_fail(name);
    }
    let external = format!("data_file={}", path("data.raw"));
    let secret = "encrypt.format=luks,encrypt.key-secret=s";
    for (name, size, options) in [
        ("child.qcow2", "1M", &["-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/base.img"][..]),
        ("huge.qcow2", "1P", &["-f", "qcow2"]),
        (
            "encrypted.qcow2",
            "1M",
            &["--object", "secret,id=s,data=hunter2", "-f", "qcow2", "-o", secret],
        ),
        ("flat.vmdk", "1M", &["-f", "vmdk", "-o", "subformat=monolithicFlat"]),
        ("external.qcow2", "1M", &["-f", "qcow2", "-o", &external]),
    ] {
        let words = ["create", "-q"].iter().chain(options).copied();
        tools::run("qemu-img", words.chain([&*path(name), size]));
    }
}

fn start_servers(folder: &Path, scene: MistakeScene) -> (Vec<Nginx>, MistakeScene) {
    let authority = Authority::new().or_fail("an authority");
    std::fs::write(folder.join("trusted/ca.pem"), authority.pem()).or_fail("a certificate");
    let certificates = [
        ("https", authority.server(testkit::certs::KeyKind::Ecdsa)),
        ("expired", authority.expired_server()),
        ("misnamed", authority.server_of(&["elsewhere.invalid"])),
    ];
    let start = |name: &str, tls: bool, directives: &str| -> Nginx {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).or_fail(name);
        let path = |file: &str| folder.join(file);
        for file in ["raw", "empty", "damaged.gz", "half.gz"] {
            std::os::unix::fs::symlink(path("..").join(file), path(file)).or_fail(file);
        }
        Nginx::start(&folder, tls, directives)
    };
    let mut servers = Vec::new();
    let mut scene = scene;
    for (name, identity) in certificates {
        let identity = identity.or_fail(name);
        std::fs::create_dir(folder.join(name)).or_fail(name);
        std::fs::write(folder.join(name).join("server.crt"), &identity.certificate_pem)
            .or_fail(name);
        std::fs::write(folder.join(name).join("server.key"), identity.key_pem()).or_fail(name);
        let server = start(name, true, WEB);
        scene = scene.word(name, server.address());
        servers.push(server);
    }
    for (name, directives) in [
        ("http", WEB),
        ("proxy407", "return 407;"),
        ("proxy403", "return 403;"),
        ("proxy502", "return 502;"),
    ] {
        let server = start(name, false, directives);
        scene = scene.word(name, server.address());
        servers.push(server);
    }
    (servers, scene)
}

/// An image without a disk.
fn program_image() -> Image {
    Image::new(vec![(tar(&[("bin/true", b"\x7fELF")]), Compression::Gzip)])
}

fn start_registries(scene: MistakeScene) -> (Vec<DockerRegistry>, MistakeScene) {
    let raw = disk::content(1, MIB);
    let other = Image { architecture: "s390x", ..Image::of_disk(&raw, Compression::Gzip) };
    let plain = Image { architecture: "arm64", ..Image::of_disk(&raw, Compression::Gzip) };
    let program = program_image();
    let images: [(&str, &[Image]); 3] = [
        ("vm:multi", &[other.clone(), plain]),
        ("vm:program", std::slice::from_ref(&program)),
        ("vm:s390x", &[other]),
    ];
    let open = DockerRegistry::start_with(Setup::default(), &images);
    let locked =
        DockerRegistry::start_with(Setup { auth: Auth::Basic, ..Setup::default() }, &images[1..2]);
    let scene = scene.word("registry", open.address()).word("locked", locked.address());
    (vec![open, locked], scene)
}
