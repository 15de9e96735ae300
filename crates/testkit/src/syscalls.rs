//! The files that a program makes, or opens for writing, and the addresses that it connects to, as strace sees it.

use std::net::SocketAddr;
use std::path::Path;

use crate::fail::OrFail;
use crate::process::Program;

/// System calls that make or open a file, or memory that stands in for one.
const CREATING: &str = "trace=open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2,memfd_create";

/// Devices that hold nothing.
const HARMLESS: [&str; 3] = ["\"/dev/null\"", "\"/dev/tty\"", "\"/dev/zero\""];

/// System calls that reach another machine, or another process of this one.
const CONNECTING: &str = "trace=execve,connect,sendto,sendmsg,sendmmsg";

/// The program under strace, which writes the calls that make files to `log`.
pub fn watched(program: Program, log: &Path) -> Program {
    traced(program, CREATING, log)
}

/// The program under strace, which writes the calls that connect to `log`.
pub fn watched_connecting(program: Program, log: &Path) -> Program {
    traced(program, CONNECTING, log)
}

/// The calls in `log` that went to a place on a network other than the `expected` ones.
pub fn strangers(log: &Path, expected: &[SocketAddr]) -> Vec<String> {
    let calls = std::fs::read_to_string(log).or_fail("the log of strace");
    assert!(calls.contains("execve("), "strace saw no call at all");
    let expected = expected.iter().map(|address| format!("sin_port=htons({})", address.port()));
    let expected: Vec<String> = expected.collect();
    let is_strange = |call: &&str| {
        // Connected sockets name no address; sockets of the system's own (Unix, netlink) lead to no network.
        call.contains("sa_family=AF_INET")
            && !(call.contains("\"127.0.0.1\"") && expected.iter().any(|port| call.contains(port)))
    };
    calls.lines().filter(is_strange).map(str::to_owned).collect()
}

fn traced(program: Program, calls: &str, log: &Path) -> Program {
    // -y: what a descriptor leads to.
    let options = ["-f", "-y", "--seccomp-bpf", "-qq", "-s", "4096", "-e", calls, "-o"];
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

/// True if the call is about the file `path`, by its name or by a descriptor of it.
pub fn is_about(call: &str, path: &Path) -> bool {
    call.contains(&format!("{path:?}")) || call.ends_with(&format!("<{}>", path.display()))
}

/// True if a line of strace's log is a successful call that can write.
fn writes(call: &str) -> bool {
    let opens = call.contains(" open(") || call.contains(" openat(") || call.contains(" openat2(");
    let for_writing = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TMPFILE"].iter().any(|flag| call.contains(flag));
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
        let again = r#"12 openat(AT_FDCWD</>, "/proc/self/fd/3", O_WRONLY|O_DIRECT) = 4</tmp/x>"#;
        assert!(is_about(writing[0], Path::new("/tmp/x")) && is_about(again, Path::new("/tmp/x")));
        assert!(!is_about(again, Path::new("/tmp")));
    }
}
