//! Typical mistakes on the command line: each has an exit code and says where, why and what to do.

mod damaged;
mod files;
mod options;
mod servers;
mod stores;

use std::net::TcpListener;
use std::path::Path;

use tempfile::TempDir;
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

/// Servers, files and devices of the scene. They are dropped in this order, because the folder
/// holds the mount and the data of the device.
struct Surroundings {
    _memory: Tmpfs,
    _device: LoopDevice,
    _nbd: NbdServer,
    _silent: TcpListener,
    _registries: Vec<DockerRegistry>,
    _servers: Vec<Nginx>,
    _folder: TempDir,
}

/// One test for all tables, so that servers, mounts and devices are started once.
#[test]
#[ignore = "server: docker-registry, htpasswd, nginx"]
fn every_mistake_has_its_exit_code_and_a_helpful_sentence() {
    let (surroundings, scene) = scene();
    for (name, table) in [
        ("usage", options::USAGE),
        ("values", options::VALUES),
        ("secrets", options::SECRETS),
        ("exclusive-options", options::EXCLUSIVE_OPTIONS),
        ("stray-options", options::STRAY_OPTIONS),
        ("sources", files::SOURCES),
        ("foreign-files", files::FOREIGN_FILES),
        ("targets", files::TARGETS),
        ("archives", files::ARCHIVES),
        ("damaged-images", damaged::DAMAGED_IMAGES),
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
    drop(surroundings);
}

fn scene() -> (Surroundings, MistakeScene) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let scene = MistakeScene::new(crate::BINARY, SNAPSHOTS)
        .secret(PASSWORD)
        .word("space", " ")
        .word("closed", "127.0.0.1:1");
    let scene = scene.word("files", folder.path().display());
    write_files(folder.path());
    write_images(folder.path());
    let (servers, scene) = start_servers(folder.path(), scene);
    let (registries, scene) = start_registries(folder.path(), scene);
    let nbd = NbdServer::qemu(["--format=raw".as_ref(), folder.path().join("raw").as_os_str()]);
    let silent = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let device = LoopDevice::empty(folder.path(), MIB, 512);
    let memory = folder.path().join("memory");
    std::fs::create_dir(&memory).or_fail("a folder");
    let memory_mount = Tmpfs::on(&memory, 2 * MIB);
    let scene = scene
        .word("nbd", nbd.uri("none"))
        .word("silent", silent.local_addr().or_fail("an address"))
        .word("device", device.path().display())
        .word("memory", memory.display());
    let surroundings = Surroundings {
        _folder: folder,
        _servers: servers,
        _registries: registries,
        _nbd: nbd,
        _silent: silent,
        _device: device,
        _memory: memory_mount,
    };
    (surroundings, scene)
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
        ("disk.zip", [b"PK\x03\x04\x14\0\0\0\x08\0".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.7z", [b"7z\xBC\xAF\x27\x1C\0\x04".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.rar", [b"Rar!\x1A\x07\x01\0".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.lz4", [b"\x04\x22\x4D\x18".to_vec(), disk::content(2, 4096)].concat()),
        ("disk.qed", [b"QED\0".to_vec(), disk::content(2, 4096)].concat()),
        ("package.rpm", [b"\xED\xAB\xEE\xDB\x03\0".to_vec(), disk::content(2, 4096)].concat()),
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
        ("password", PASSWORD.as_bytes().to_vec()),
        ("header", b"X-Token: hunter2\n".to_vec()),
        ("not-a-header", b"hunter2\n".to_vec()),
        ("key.json", b"{\"type\":\"authorized_user\"}".to_vec()),
        ("notes.txt", b"a note\n".to_vec()),
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n".to_vec()),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).or_fail(name);
    }
    for name in ["directory", "authorities", "full"] {
        std::fs::create_dir(folder.join(name)).or_fail(name);
    }
    std::fs::write(folder.join("full/a"), "somebody else's").or_fail("a file");
    std::fs::write(folder.join("authorities/ca.pem"), "nonsense").or_fail("a file");
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
    let create = |words: &[&str]| {
        drop(tools::run("qemu-img", ["create", "-q"].iter().chain(words).copied()))
    };
    create(&["-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/base.img", &path("child.qcow2"), "1M"]);
    create(&["-f", "qcow2", &path("huge.qcow2"), "1P"]);
    let secret = [
        "--object",
        "secret,id=s,data=hunter2",
        "-f",
        "qcow2",
        "-o",
        "encrypt.format=luks,encrypt.key-secret=s",
    ];
    create(&[&secret[..], &[&path("encrypted.qcow2"), "1M"]].concat());
    create(&["-f", "vmdk", "-o", "subformat=monolithicFlat", &path("flat.vmdk"), "1M"]);
    create(&[
        "-f",
        "qcow2",
        "-o",
        &format!("data_file={}", path("data.raw")),
        &path("external.qcow2"),
        "1M",
    ]);
}

fn start_servers(folder: &Path, scene: MistakeScene) -> (Vec<Nginx>, MistakeScene) {
    let authority = Authority::new().or_fail("an authority");
    std::fs::create_dir(folder.join("trusted")).or_fail("a folder");
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

fn start_registries(folder: &Path, scene: MistakeScene) -> (Vec<DockerRegistry>, MistakeScene) {
    let raw = disk::content(1, MIB);
    let other = Image { architecture: "s390x", ..Image::of_disk(&raw, Compression::Gzip) };
    let plain = Image { architecture: "arm64", ..Image::of_disk(&raw, Compression::Gzip) };
    let program = Image::new(vec![(tar(&[("bin/true", b"\x7fELF")]), Compression::Gzip)]);
    let images: [(&str, &[Image]); 3] = [
        ("vm:multi", &[other.clone(), plain]),
        ("vm:program", std::slice::from_ref(&program)),
        ("vm:s390x", &[other]),
    ];
    let open = DockerRegistry::start_with(Setup::default(), &images);
    let locked =
        DockerRegistry::start_with(Setup { auth: Auth::Basic, ..Setup::default() }, &images[1..2]);
    let layout = folder.join("layout");
    std::fs::create_dir(&layout).or_fail("a folder");
    write_layout(&layout, &[program]);
    let scene = scene.word("registry", open.address()).word("locked", locked.address());
    (vec![open, locked], scene)
}
