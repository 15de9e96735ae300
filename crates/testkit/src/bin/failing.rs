//! `failing REPORT NTH EFFECT CALLS PROGRAM ARGS…` runs a program in which the NTH of the given
//! system calls fails. The calls of all threads are counted together, from the start of the
//! program's `main`. `testkit::failing` builds this command line and reads REPORT afterwards.
//!
//! A seccomp filter stops the program only at these calls, so the others run at full speed, and
//! ptrace changes the chosen call. strace is not used because it counts the calls of each thread
//! separately.

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    match tracer::run() {
        Ok(code) => std::process::ExitCode::from(code),
        Err(reason) => tracer::complain(&*reason),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}

#[cfg(target_arch = "x86_64")]
mod tracer {
    use std::collections::{BTreeMap, BTreeSet};
    use std::error::Error;
    use std::ffi::OsString;
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::{Command, ExitCode};

    use nix::libc;
    use nix::sys::ptrace::{self, Event, Options};
    use nix::sys::signal::{Signal, raise};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    use testkit::attack;
    use testkit::failing::{self, Effect, STANDARD_OUTPUTS};

    type Failure = Box<dyn Error>;

    /// The first argument of the child process that becomes the program.
    const TRACED: &str = "--traced";

    /// Exit code of a failure of the tracer itself. None of our programs uses it.
    const OWN_FAILURE: u8 = 120;

    #[allow(clippy::print_stderr, reason = "the test that runs it shows this")]
    pub(super) fn complain(reason: &dyn Error) -> ExitCode {
        eprintln!("failing: {reason}");
        ExitCode::from(OWN_FAILURE)
    }

    pub(super) fn run() -> Result<u8, Failure> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if let [first, calls, program, args @ ..] = &words[..]
            && first == TRACED
        {
            return become_program(&numbers(calls)?, program, args);
        }
        let [report, nth, effect, calls, program @ ..] = &words[..] else {
            return Err("REPORT NTH EFFECT CALLS PROGRAM ARGS…".into());
        };
        let text =
            |word: &OsString| word.to_str().map(str::to_owned).ok_or("a word that is not text");
        let child = Command::new(std::env::current_exe()?)
            .args([TRACED.as_ref(), calls.as_os_str()])
            .args(program)
            .spawn()?;
        let mut tracer = Tracer {
            leader: Pid::from_raw(i32::try_from(child.id())?),
            threads: BTreeSet::new(),
            has_begun: false,
            nth: text(nth)?.parse()?,
            effect: text(effect)?.parse()?,
            calls: numbers(calls)?,
            counts: BTreeMap::new(),
            report: report.into(),
            attacks: None,
        };
        let code = tracer.follow()?;
        let text = tracer.attacks.unwrap_or_else(|| failing::report(&tracer.counts));
        std::fs::write(Path::new(report), text)?;
        Ok(code)
    }

    fn numbers(calls: &OsString) -> Result<Vec<i64>, Failure> {
        let calls = calls.to_str().ok_or("numbers")?;
        Ok(calls.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Stops until the tracer is ready, installs the filter, which survives `exec`, and becomes
    /// the program.
    fn become_program(calls: &[i64], program: &OsString, args: &[OsString]) -> Result<u8, Failure> {
        ptrace::traceme()?;
        raise(Signal::SIGSTOP)?;
        let stops = calls.iter().chain([&libc::SYS_poll]);
        let rules = stops.map(|call| (*call, Vec::new())).collect();
        let trace = SeccompAction::Trace(0);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, trace, TargetArch::x86_64)?;
        let mut program = Command::new(program);
        program.args(args);
        seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
        Err(program.exec().into())
    }

    struct Tracer {
        leader: Pid,
        threads: BTreeSet<Pid>,
        /// True once the program's `main` runs: the calls of the dynamic loader are not counted.
        has_begun: bool,
        nth: u64,
        effect: Effect,
        calls: Vec<i64>,
        counts: BTreeMap<i64, u64>,
        report: PathBuf,
        /// What became of the attacks.
        attacks: Option<String>,
    }

    impl Tracer {
        /// Returns the exit code of the program, as a shell reports it.
        fn follow(&mut self) -> Result<u8, Failure> {
            loop {
                match waitpid(None, Some(WaitPidFlag::__WALL))? {
                    WaitStatus::Stopped(thread, signal) => self.pass_on(thread, signal)?,
                    WaitStatus::PtraceEvent(thread, _, event) => {
                        if event == Event::PTRACE_EVENT_SECCOMP as i32 {
                            self.meet(thread)?;
                        }
                        resume(thread, None)?;
                    }
                    WaitStatus::Exited(thread, code) if thread == self.leader => {
                        return Ok(u8::try_from(code)?);
                    }
                    WaitStatus::Signaled(thread, signal, _) if thread == self.leader => {
                        return Ok(128 + u8::try_from(signal as i32)?);
                    }
                    _ => {}
                }
            }
        }

        fn pass_on(&mut self, thread: Pid, signal: Signal) -> Result<(), Failure> {
            // Each new thread starts with a SIGSTOP for the tracer, which must not reach the
            // program.
            if signal == Signal::SIGSTOP && self.threads.insert(thread) {
                if thread == self.leader {
                    let events = Options::PTRACE_O_TRACECLONE
                        | Options::PTRACE_O_TRACEFORK
                        | Options::PTRACE_O_TRACEVFORK
                        | Options::PTRACE_O_TRACEEXEC
                        | Options::PTRACE_O_TRACESECCOMP
                        | Options::PTRACE_O_EXITKILL;
                    ptrace::setoptions(thread, events)?;
                }
                return resume(thread, None);
            }
            resume(thread, Some(signal))
        }

        /// Counts the call at which `thread` has stopped, and changes it if it is the chosen one.
        fn meet(&mut self, thread: Pid) -> Result<(), Failure> {
            let mut registers = match ptrace::getregs(thread) {
                Err(nix::Error::ESRCH) => return Ok(()),
                other => other?,
            };
            let call = registers.orig_rax.cast_signed();
            // Rust's standard library checks its descriptors with poll(2) before it calls `main`.
            self.has_begun |= call == libc::SYS_poll;
            if !self.has_begun
                || !self.calls.contains(&call)
                || !self.is_meant(thread, call, registers.rdi)
            {
                return Ok(());
            }
            *self.counts.entry(call).or_default() += 1;
            let number: u64 = self.counts.values().sum();
            match self.effect {
                Effect::None => return Ok(()),
                Effect::Attack(count) => {
                    if number == self.nth {
                        let made = attack::make_attacks(thread, registers, &self.report, count)?;
                        self.attacks = Some(made);
                    }
                    return Ok(());
                }
                Effect::Once(_) | Effect::Short if number != self.nth => return Ok(()),
                Effect::Forever(_) if number < self.nth => return Ok(()),
                Effect::Once(errno) | Effect::Forever(errno) => {
                    // No system call has this number, so the kernel does nothing.
                    registers.orig_rax = u64::MAX;
                    registers.rax = i64::from(-errno).cast_unsigned();
                }
                Effect::Short => registers.rdx = registers.rdx.div_ceil(2),
            }
            match ptrace::setregs(thread, registers) {
                Err(nix::Error::ESRCH) => Ok(()),
                other => Ok(other?),
            }
        }

        /// Returns false for calls that do not transfer the program's data: writes to standard
        /// output and error, where tests look for messages, and transfers on the runtime's own
        /// descriptors (eventfd, epoll), for which the kernel never returns these errors. Short
        /// transfers on sockets are left out too (see `failing::GROUPS`).
        fn is_meant(&self, thread: Pid, call: i64, descriptor: u64) -> bool {
            if !failing::TRANSFERS.contains(&call) {
                return true;
            }
            let link = std::fs::read_link(format!("/proc/{thread}/fd/{descriptor}"));
            let is_of =
                |kind| link.as_ref().is_ok_and(|file| file.to_string_lossy().starts_with(kind));
            let is_left_out = STANDARD_OUTPUTS.contains(&descriptor)
                || is_of("anon_inode:")
                || (self.effect == Effect::Short && is_of("socket:"));
            !is_left_out
        }
    }

    /// Lets a stopped thread run. A thread that was killed in the meantime is ignored.
    fn resume(thread: Pid, signal: Option<Signal>) -> Result<(), Failure> {
        match ptrace::cont(thread, signal) {
            Err(nix::Error::ESRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}
