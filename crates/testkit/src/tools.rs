//! External programs that make the tests' inputs or serve as reference implementations.
//!
//! A missing program fails the test with the name of its Debian package. The test is not skipped,
//! because then it would prove nothing.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::fail::OrFail;
use crate::wait;

/// Programs, and the Debian packages that contain them.
const PACKAGES: [(&str, &str); 48] = [
    ("addpart", "util-linux"),
    ("bash", "bash"),
    ("bsdtar", "libarchive-tools"),
    ("bzip2", "bzip2"),
    ("chromedriver", "chromium-driver"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("date", "coreutils"),
    ("delpart", "util-linux"),
    ("docker-registry", "docker-registry"),
    ("du", "coreutils"),
    ("etcd", "etcd-server"),
    ("find", "findutils"),
    ("firefox-esr", "firefox-esr"),
    ("fish", "fish"),
    ("gcc", "gcc"),
    ("go", "golang-go"),
    ("gpg", "gnupg"),
    ("gzip", "gzip"),
    ("htpasswd", "apache2-utils"),
    ("ip", "iproute2"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mknod", "coreutils"),
    ("mount", "mount"),
    ("nbdkit", "nbdkit"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("openssl", "openssl"),
    ("podman", "podman"),
    ("prlimit", "util-linux"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("python3", "python3"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("setpriv", "util-linux"),
    ("skopeo", "skopeo"),
    ("strace", "strace"),
    ("tar", "tar"),
    ("time", "time"),
    ("umount", "mount"),
    ("unshare", "util-linux"),
    ("xz", "xz-utils"),
    ("zsh", "zsh"),
    ("zstd", "zstd"),
];

/// Programs that compress their standard input with `-c`: one for each codec that is recognized by
/// content, with the codec's name.
pub const COMPRESSORS: [&str; 4] = ["gzip", "xz", "zstd", "bzip2"];

/// Folders of system programs, which a user's `PATH` often lacks.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Returns the full path of `name`. If it is missing, fails the test with the package to install.
pub fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            let package =
                PACKAGES.iter().find(|(program, _)| *program == name).map_or(name, |(_, p)| p);
            panic!("this test needs the program {name}: apt-get install {package}")
        })
}

/// Runs `name` to its end and returns its output. Fails the test if the program fails.
pub fn run<A: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = A>) -> String {
    let mut command = Command::new(find(name));
    command.args(args).stdin(Stdio::null());
    checked(name, &command.output().or_fail(name))
}

/// Runs `name` with `input` on standard input and returns its standard output.
pub fn filter<A: AsRef<OsStr>>(
    name: &str,
    args: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Vec<u8> {
    let mut child = Command::new(find(name))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .or_fail(name);
    let mut stdin = child.stdin.take().or_fail("a piped standard input");
    let output = std::thread::scope(|scope| {
        let feeder = scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().or_fail(name);
        feeder.join().ok().or_fail("the feeding thread").or_fail(name);
        output
    });
    checked(name, &output);
    output.stdout
}

/// Runs `testkit/FOLDER/build` and returns the path that it prints: a program or a folder of
/// programs, which the script builds or installs if necessary. CI runs these scripts before the
/// tests.
pub fn built(folder: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("build");
    let built = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .or_fail(script.display());
    assert!(built.status.success(), "{} failed, see above", script.display());
    String::from_utf8_lossy(&built.stdout).trim().into()
}

/// Sends a request with these headers (`name: value`). It must succeed; the response is returned
/// with its head.
pub fn send(method: &str, url: &str, headers: &[&str], body: &[u8]) -> String {
    let fixed = [
        "--silent",
        "--show-error",
        "--fail-with-body",
        "--include",
        "--noproxy",
        "*",
        "--data-binary",
        "@-",
        "--header",
        "expect:",
        "--request",
        method,
    ];
    let headers = headers.iter().flat_map(|header| ["--header", header]);
    let args = fixed.into_iter().chain(headers).chain([url]);
    String::from_utf8_lossy(&filter("curl", args, body)).into_owned()
}

/// Unmounts `folder`. A program that another test is just starting holds copies of our open files
/// until it is executed, even of files closed here in the meantime. Unmounting is therefore
/// retried while the target is busy.
pub fn unmount(folder: &Path) {
    let unmounted = || {
        let mut command = Command::new(find("umount"));
        let output = command.arg(folder).output().or_fail("umount");
        output.status.success()
    };
    let complaint = || format!("{} is still mounted", folder.display());
    wait::until(complaint, unmounted);
}

/// Returns whether `qemu-img convert -O raw` accepts `image` of this `format`. The result is
/// written to `raw`.
pub fn qemu_converts(format: &str, image: &Path, raw: &Path) -> bool {
    Command::new(find("qemu-img"))
        .args(["convert", "-t", "unsafe", "-f", format, "-O", "raw"])
        .args([image, raw])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .or_fail("qemu-img")
        .success()
}

fn checked(name: &str, output: &Output) -> String {
    assert!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
