//! No file is created or written besides the target.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::{disk, tools};

/// System calls that make or open a file, or memory that stands in for one.
const CREATING: &str = "trace=open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2,memfd_create";

/// Devices that hold nothing.
const HARMLESS: [&str; 3] = ["\"/dev/null\"", "\"/dev/tty\"", "\"/dev/zero\""];

/// Runs the program under strace and returns the calls that created a file or opened one for writing.
fn created(program: Program, log: &Path) -> Vec<String> {
    let options = ["-f", "--seccomp-bpf", "-qq", "-s", "4096", "-e", CREATING, "-o"];
    let log = log.to_owned();
    let args = options.iter().map(AsRef::as_ref).chain([log.as_os_str()]);
    program
        .under("strace", args.collect::<Vec<_>>())
        .start()
        .wait()
        .assert_success("under strace");
    let calls = std::fs::read_to_string(&log).or_fail("the log of strace");
    assert!(calls.contains("openat("), "strace saw no call at all");
    calls
        .lines()
        .filter(|call| writes(call))
        .map(str::to_owned)
        .collect()
}

/// Whether a line of strace's log is a successful call that can write.
fn writes(call: &str) -> bool {
    let opens = call.contains(" open(") || call.contains(" openat(") || call.contains(" openat2(");
    let for_writing = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TMPFILE"]
        .iter()
        .any(|flag| call.contains(flag));
    let failed = call.contains(" = -1 ");
    let harmless = HARMLESS.iter().any(|path| call.contains(path));
    // Lines about signals and exits have no call; of a thread that ends with the process, strace may not know it.
    let is_call = call.contains('(') && !call.contains(" ???(");
    is_call && (!opens || for_writing) && !failed && !harmless
}

fn check(name: &str, folder: &Path, expected: &Image, program: impl FnOnce(Program) -> Program) {
    let target = folder.join("disk.img");
    let importer = program(Program::new(env!("CARGO_BIN_EXE_cdi-importer")).arg("import")).arg(&target);
    let quoted = format!("{:?}", target.as_os_str());
    let calls = created(importer, &folder.join("strace.log"));
    let (at_target, elsewhere): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.contains(&quoted));
    assert!(
        !at_target.is_empty(),
        "{name}: the target itself must be among the files: {calls:#?}"
    );
    assert!(
        elsewhere.is_empty(),
        "{name}: other files were written: {elsewhere:#?}"
    );
    disk::assert_same(&target, &expected.raw, expected.virtual_size, name);
    std::fs::remove_file(&target).or_fail(name);
}

#[test]
fn nothing_is_written_besides_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for content in [Content::Sparse, Content::Snapshots, Content::RandomOrder] {
        let spec = Spec {
            compression: Compression::Zlib,
            resized_to: Some(600 << 20),
            ..Spec::new(content)
        };
        let image = spec.build(folder, "image");
        let object = std::fs::read(&image.qcow2).unwrap();
        check("a file by its map", folder, &image, |importer| {
            importer.arg(&image.qcow2)
        });
        check("an image from a pipe", folder, &image, |importer| {
            importer.arg("-").stdin_bytes(object.clone())
        });
        let xz = tools::filter("xz", ["-c"], &object);
        check("a compressed image from a pipe", folder, &image, |importer| {
            importer.arg("-").stdin_bytes(xz)
        });
        let origin = Origin::start(Script::new(object)).unwrap();
        check("an image over HTTP", folder, &image, |importer| {
            importer.arg(origin.url("/object"))
        });
        check("a raw disk", folder, &image, |importer| importer.arg(&image.raw));
    }
}

#[test]
fn a_log_of_calls_is_understood() {
    let harmless = [
        r#"12 openat(AT_FDCWD, "/etc/hosts", O_RDONLY|O_CLOEXEC) = 3"#,
        r#"12 openat(AT_FDCWD, "/dev/null", O_RDWR) = 3"#,
        r#"12 mkdir("/scratch", 0777) = -1 EROFS (Read-only file system)"#,
        "12 +++ exited with 0 +++",
    ];
    let writing = [
        r#"12 openat(AT_FDCWD, "/tmp/x", O_WRONLY|O_CREAT, 0666) = 3"#,
        r#"12 memfd_create("x", MFD_CLOEXEC) = 3"#,
        r#"12 mkdir("/scratch/x", 0777) = 0"#,
    ];
    assert!(!harmless.iter().any(|call| writes(call)));
    assert!(writing.iter().all(|call| writes(call)));
}
