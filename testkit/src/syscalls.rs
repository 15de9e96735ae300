//! Which files a program makes, or opens for writing, as strace sees it.

use std::path::Path;

use crate::fail::OrFail;
use crate::process::Program;

/// System calls that make or open a file, or memory that stands in for one.
const CREATING: &str = "trace=open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2,memfd_create";

/// Devices that hold nothing.
const HARMLESS: [&str; 3] = ["\"/dev/null\"", "\"/dev/tty\"", "\"/dev/zero\""];

/// The program under strace, which writes the calls to `log`.
pub fn watched(program: Program, log: &Path) -> Program {
    let options = ["-f", "--seccomp-bpf", "-qq", "-s", "4096", "-e", CREATING, "-o"];
    let args = options.iter().map(AsRef::as_ref).chain([log.as_os_str()]);
    program.under("strace", args)
}

/// The calls in `log` that made a file or opened one for writing.
pub fn created(log: &Path) -> Vec<String> {
    let calls = std::fs::read_to_string(log).or_fail("the log of strace");
    assert!(calls.contains("openat("), "strace saw no call at all");
    let writing = calls.lines().filter(|call| writes(call));
    writing.map(str::to_owned).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
