//! Records with strace which files a program creates or opens for writing, and which addresses it
//! connects to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use crate::fail::OrFail;
use crate::process::Program;

/// System calls that create or open a file, or memory used like a file.
const CREATING: &str = "trace=open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2,memfd_create";

/// Devices that store nothing.
const HARMLESS: [&str; 3] = ["\"/dev/null\"", "\"/dev/tty\"", "\"/dev/zero\""];

/// System calls that reach another machine or another local process.
const CONNECTING: &str = "trace=execve,connect,sendto,sendmsg,sendmmsg";

/// Wraps the program in strace, which writes the calls that create files to `log`.
pub fn watched(program: Program, log: &Path) -> Program {
    traced(program, CREATING, log)
}

/// Wraps the program in strace, which writes the calls that connect to `log`.
pub fn watched_connecting(program: Program, log: &Path) -> Program {
    traced(program, CONNECTING, log)
}

/// Returns the calls in `log` that went to a network address other than the `expected` ones.
pub fn strangers(log: &Path, expected: &[SocketAddr]) -> Vec<String> {
    let calls = calls_in(log);
    assert!(calls.iter().any(|call| call.contains("execve(")), "strace saw no call at all");
    let expected = expected.iter().map(|address| format!("sin_port=htons({})", address.port()));
    let expected: Vec<String> = expected.collect();
    let is_strange = |call: &String| {
        // Calls on connected sockets name no address, and Unix and netlink sockets do not reach a
        // network.
        call.contains("sa_family=AF_INET")
            && !(call.contains("\"127.0.0.1\"") && expected.iter().any(|port| call.contains(port)))
    };
    calls.into_iter().filter(is_strange).collect()
}

fn traced(program: Program, calls: &str, log: &Path) -> Program {
    // `-y` prints the path of each descriptor.
    let options = ["-f", "-y", "--seccomp-bpf", "-qq", "-s", "4096", "-e", calls, "-o"];
    let args = options.iter().map(AsRef::as_ref).chain([log.as_os_str()]);
    program.under("strace", args)
}

/// Returns the calls in `log` that created a file or opened one for writing.
pub fn created(log: &Path) -> Vec<String> {
    let calls = calls_in(log);
    assert!(calls.iter().any(|call| call.contains("openat(")), "strace saw no call at all");
    calls.into_iter().filter(|call| writes(call)).collect()
}

fn calls_in(log: &Path) -> Vec<String> {
    whole_calls(&std::fs::read_to_string(log).or_fail("the log of strace"))
}

/// Returns the calls in strace's output, each in one line. If another thread makes a call
/// meanwhile, strace prints the beginning and the end of a call in lines of their own.
fn whole_calls(output: &str) -> Vec<String> {
    let mut begun = BTreeMap::new();
    let mut calls = Vec::new();
    for line in output.lines() {
        let thread = line.split(' ').next().unwrap_or_default();
        if let Some(beginning) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, beginning);
        } else if let Some((_, end)) = line.split_once(" resumed>") {
            calls.push(format!("{}{end}", begun.remove(thread).unwrap_or_default()));
        } else {
            calls.push(line.to_owned());
        }
    }
    // The process ended during these calls.
    calls.extend(begun.into_values().map(str::to_owned));
    calls
}

/// Returns whether the call concerns the file `path`, by name or by descriptor.
pub fn is_about(call: &str, path: &Path) -> bool {
    call.contains(&format!("{path:?}")) || call.ends_with(&format!("<{}>", path.display()))
}

/// Returns whether a line of strace's log is a successful call that may write.
fn writes(call: &str) -> bool {
    let opens = call.contains(" open(") || call.contains(" openat(") || call.contains(" openat2(");
    let for_writing =
        ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TMPFILE"].iter().any(|flag| call.contains(flag));
    let failed = call.contains(" = -1 ");
    let harmless = HARMLESS.iter().any(|path| call.contains(path));
    // Lines about signals and exits contain no call. If a thread ends with the process, strace may
    // print `???` instead of a result.
    let is_call = call.contains('(') && !call.contains(" ???(");
    is_call && (!opens || for_writing) && !failed && !harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_two_lines_is_one() {
        let output =
            "1 open(\"a\" <unfinished ...>\n2 open(\"b\") = 4\n1 <... open resumed>) = 3</a>\n";
        assert_eq!(whole_calls(output), ["2 open(\"b\") = 4", "1 open(\"a\") = 3</a>"]);
    }

    #[test]
    fn calls_that_write_are_told_from_harmless_ones() {
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
