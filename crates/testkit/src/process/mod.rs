//! Runs the binary under test as a user's shell would, with a time limit, and measures it from the
//! outside.

mod finished;
pub mod lasting;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tempfile::{NamedTempFile, TempDir};

use crate::fail::OrFail;
use crate::output::Output;
use crate::terminal::Terminal;
use crate::{jobs, tools, wait};

pub use finished::Finished;

/// Most memory that a worker may use (ARCHITECTURE.md, "Memory"): 64 MiB including the pages of
/// its code, and 12 MiB more in a debug build, which CI runs.
// A debug build has 17 MB of resident code, a release build 9 MB, and its memory use varies more:
// beside three busy test programs its peak was 4 MB higher than on an idle machine (xz with many
// blocks and a slow target: 69 MiB).
pub const PEAK_RSS_BYTES: u64 = (64 << 20) + if cfg!(debug_assertions) { 12 << 20 } else { 0 };

/// Prefix of the variables that release builds ignore (`program::env`).
const OF_TESTS: &str = "CDI_WORKERS_TEST_";

/// The variable with which our programs do not decide by rates that they measure
/// (`program::env::is_pace_fixed`).
const FIXED_PACE: &str = "CDI_WORKERS_TEST_FIXED_PACE";

/// The variable that names a folder of programs to run instead of those built with the tests, if
/// they have the same name: for another architecture (`ci/emulated`) or of another version
/// (`ci/versions`).
pub const INSTEAD: &str = "CDI_TEST_PROGRAMS";

/// Interval at which a running program is checked.
const POLL: Duration = Duration::from_millis(2);

/// Returns a field of `/proc/PID/status` (proc(5)) in bytes.
pub fn memory(process: u32, field: &str) -> u64 {
    let file = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&file).or_fail(&file);
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.or_fail(field);
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse::<u64>().or_fail(field) * 1024
}

/// The CPU time of a process so far (proc(5), fields 14 and 15 of `stat`, in ticks of 10 ms).
pub fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).or_fail("/proc");
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).or_fail("fields");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().or_fail("a number")).sum();
    Duration::from_millis(ticks * 10)
}

/// Writes a program's standard input.
type Feed = Box<dyn FnOnce(&mut dyn Write) -> std::io::Result<()> + Send>;

/// A program that has not started yet.
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    wrapper: Vec<OsString>,
    env: Vec<(String, OsString)>,
    feed: Option<Feed>,
    timeout: Duration,
    takes_job: bool,
    memory_report: Option<NamedTempFile>,
    link_folder: Option<TempDir>,
}

impl Program {
    /// The program `path`, or its replacement from [`INSTEAD`], without arguments and standard
    /// input. Its time limit is [`wait::PATIENCE`]. It does not decide by rates that it measures.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let other = std::env::var_os(INSTEAD).zip(path.file_name());
        let other = other.map(|(folder, name)| Path::new(&folder).join(name));
        Self {
            path: other.filter(|other| other.exists()).unwrap_or(path),
            args: Vec::new(),
            wrapper: Vec::new(),
            env: vec![(FIXED_PACE.to_owned(), "1".into())],
            feed: None,
            timeout: wait::PATIENCE,
            takes_job: true,
            memory_report: None,
            link_folder: None,
        }
    }

    /// Runs the program under this name, through a symbolic link as in images.
    pub fn named(mut self, name: &str) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder for the link");
        let link = folder.path().join(name);
        symlink(&self.path, &link).or_fail("the link");
        self.path = link;
        self.link_folder = Some(folder);
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. Fails the test if this is a release build that ignores the
    /// variable: the program would then use real paths and ports of this machine instead of those
    /// of the test.
    #[track_caller]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        assert!(
            cfg!(debug_assertions) || !name.starts_with(OF_TESTS),
            "a release build does not hear {name} and would write to this machine's own paths: run this test without --release"
        );
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Sets environment variables, as [`env`](Self::env) does.
    #[track_caller]
    pub fn envs<N: AsRef<str>, V: AsRef<str>>(mut self, env: &[(N, V)]) -> Self {
        for (name, value) in env {
            self = self.env(name.as_ref(), value.as_ref());
        }
        self
    }

    /// Runs the program as the last arguments of another program, such as `strace -f`.
    pub fn under<A: Into<OsString>>(
        mut self,
        wrapper: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        self.wrapper.push(tools::find(wrapper).into());
        self.wrapper.extend(args.into_iter().map(Into::into));
        self
    }

    /// Lets `feed` write the program's standard input through a pipe. The program may stop
    /// reading at any time.
    pub fn stdin(
        mut self,
        feed: impl FnOnce(&mut dyn Write) -> std::io::Result<()> + Send + 'static,
    ) -> Self {
        self.feed = Some(Box::new(feed));
        self
    }

    /// Sends the content of `file` to standard input through a pipe, in which the program cannot
    /// seek.
    pub fn stdin_file(self, file: &Path) -> Self {
        let mut file = std::fs::File::open(file).or_fail(file.display());
        self.stdin(move |pipe| std::io::copy(&mut file, pipe).map(drop))
    }

    /// Sends `bytes` to standard input through a pipe.
    pub fn stdin_bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        self.stdin(move |pipe| pipe.write_all(&bytes))
    }

    /// Lets the program decide by the rates that it measures, as it does outside of tests.
    pub fn adaptive(mut self) -> Self {
        self.env.retain(|(name, _)| name != FIXED_PACE);
        self
    }

    /// Sets how long [`Running::wait`] waits before it kills the program.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Does not count the program among those that may run at once: a server that other tests
    /// share, and which waits for them.
    pub(crate) fn beside_others(mut self) -> Self {
        self.takes_job = false;
        self
    }

    /// Measures the memory of the program. The measuring wrapper does not pass signals on.
    pub fn measured(mut self) -> Self {
        let report = NamedTempFile::new().or_fail("a file for the report of `time`");
        // GNU time forks before it executes the program, so the measured peak is the program's
        // own. The peak of a direct child would include the memory of this process, from which it
        // was forked.
        self.wrapper.push(tools::find("time").into());
        self.wrapper.extend(["-q", "-f", "%M", "-o"].map(OsString::from));
        self.wrapper.push(report.path().into());
        self.memory_report = Some(report);
        self
    }

    /// Runs the program to its end.
    pub fn run(self) -> Finished {
        self.start().wait()
    }

    /// Starts the program and leaves it running, for tests that send signals or communicate with
    /// it.
    pub fn start(self) -> Running {
        self.start_with(None)
    }

    /// Like [`start`](Self::start), on `terminal`. All output is then read as standard output.
    pub fn start_on(self, terminal: &Terminal) -> Running {
        let mut program = self;
        // In front, so that a value set by the test takes precedence.
        program.env.insert(0, ("TERM".to_owned(), "xterm".into()));
        program.start_with(Some(terminal))
    }

    fn start_with(self, terminal: Option<&Terminal>) -> Running {
        let output =
            || terminal.map_or_else(Stdio::piped, |terminal| terminal.program_side().into());
        let words: Vec<OsString> =
            self.wrapper.into_iter().chain([self.path.into_os_string()]).chain(self.args).collect();
        let name = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let (first, rest) = words.split_first().or_fail("a program has a path");
        let job = self.takes_job.then(jobs::take);
        let mut child = Command::new(first)
            .args(rest)
            .envs(self.env)
            // A signal to the group reaches both the wrapper and the program.
            .process_group(0)
            .stdin(if self.feed.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(output())
            .stderr(output())
            .spawn()
            .or_fail(&name);
        if let (Some(feed), Some(mut pipe)) = (self.feed, child.stdin.take()) {
            // EPIPE is ignored: if the program stopped reading too early, its exit code shows
            // that.
            std::thread::spawn(move || feed(&mut pipe).ok());
        }
        let (stdout, stderr) = match (terminal, child.stdout.take(), child.stderr.take()) {
            (Some(terminal), ..) => {
                (Output::collect(terminal.reader()), Output::collect(std::io::empty()))
            }
            (None, Some(stdout), Some(stderr)) => {
                (Output::collect(stdout), Output::collect(stderr))
            }
            _ => panic!("{name} has no pipes"),
        };
        Running {
            name,
            child: ChildGroup(child),
            stdout,
            stderr,
            started: Instant::now(),
            timeout: self.timeout,
            memory_report: self.memory_report,
            _link_folder: self.link_folder,
            _job: job,
        }
    }
}

/// A process and its group. A test that fails, or ends without waiting, leaves none behind.
struct ChildGroup(Child);

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
            self.0.wait().ok();
        }
    }
}

/// A running program.
pub struct Running {
    name: String,
    child: ChildGroup,
    stdout: Output,
    stderr: Output,
    started: Instant,
    timeout: Duration,
    memory_report: Option<NamedTempFile>,
    _link_folder: Option<TempDir>,
    _job: Option<jobs::Job>,
}

impl Running {
    /// Sends a signal to the program and its wrapper. A program that has ended is ignored.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process_group(self.pid(), signal).ok();
    }

    /// The process ID of the program, or of its wrapper if there is one.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits until the program handles signals. Our programs install the handler of SIGINT last
    /// (proc(5), `SigCgt`).
    #[track_caller]
    pub fn wait_for_handlers(&self) {
        let file = format!("/proc/{}/status", self.id());
        let complaint = || format!("{} catches no signals", self.name);
        wait::until(complaint, || {
            let status = std::fs::read_to_string(&file).or_fail(&file);
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.or_fail(&file).trim(), 16).or_fail(&file);
            (caught >> (Signal::INT.as_raw() - 1)) & 1 == 1
        });
    }

    /// Waits for a line on standard error that contains `needle` and returns it. Fails the test if
    /// the program ends first or the line does not appear.
    #[track_caller]
    pub fn wait_for_line(&self, needle: &str) -> String {
        self.stderr.wait_for(needle)
    }

    /// Like [`wait_for_line`](Self::wait_for_line), but returns `None` if the program ends first.
    #[track_caller]
    pub fn wait_for_line_or_end(&self, needle: &str) -> Option<String> {
        self.stderr.wait_for_or_end(needle)
    }

    /// The text on standard error so far.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.so_far()
    }

    /// Waits until the program ends. If it exceeds its time limit, it is killed and the test
    /// fails.
    pub fn wait(mut self) -> Finished {
        let waiting = Instant::now();
        while !self.has_ended() {
            if waiting.elapsed() > self.timeout {
                self.signal(Signal::KILL);
                panic!("{} did not end within {:?}", self.name, self.timeout);
            }
            std::thread::sleep(POLL);
        }
        let wall = self.started.elapsed();
        let written_bytes = written_bytes(self.child.0.id());
        let status = self.child.0.wait().or_fail(&self.name);
        Finished {
            name: self.name,
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            wall,
            written_bytes,
            peak_rss_bytes: self.memory_report.and_then(|report| peak_rss_bytes(&report)),
        }
    }

    /// True if the program has ended. It is not reaped, because its entry in `/proc` is still
    /// needed.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        rustix::process::waitid(WaitId::Pid(self.pid()), options).or_fail(&self.name).is_some()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child.0)
    }
}

/// The peak that GNU time reported in KiB; `None` if the program and `time` were killed.
fn peak_rss_bytes(report: &NamedTempFile) -> Option<u64> {
    let report = std::fs::read_to_string(report.path()).or_fail("the report of `time`");
    report.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// `wchar` of proc(5): bytes written by an ended process that is not yet reaped, and by the
/// children it waited for.
fn written_bytes(pid: u32) -> Option<u64> {
    let accounts = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let wchar = accounts.lines().find_map(|line| line.strip_prefix("wchar: "))?;
    wchar.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[test]
    #[ignore = "server: time"]
    fn output_code_written_bytes_and_memory_are_the_programs_own() {
        let ballast = vec![1_u8; 256 << 20];
        let script =
            "cat >/dev/null; head -c 5000000 /dev/zero > /dev/null; echo out; echo err >&2; exit 7";
        let finished = shell(script).stdin_bytes(vec![b'x'; 100_000]).measured().run();
        assert_eq!(
            (finished.code(), finished.stdout.as_str(), finished.stderr.as_str()),
            (7, "out\n", "err\n")
        );
        assert!(
            (5_000_000..5_300_000).contains(&finished.written_bytes()),
            "{}",
            finished.written_bytes()
        );
        let peak = finished.peak_rss_bytes.unwrap();
        assert!(peak > 0 && peak < 64 << 20, "{peak} bytes, this process has {}", ballast.len());
    }

    #[test]
    fn a_signal_ends_a_running_program() {
        let running = shell("sleep 60").start();
        running.signal(Signal::TERM);
        let finished = running.wait();
        assert_eq!(finished.code(), 143);
    }

    #[test]
    #[should_panic(expected = "did not end within")]
    fn a_program_that_hangs_fails_the_test() {
        shell("sleep 60").timeout(Duration::from_millis(50)).run();
    }
}
