//! `failing REPORT NTH EFFECT CALLS PROGRAM ARGS…`: runs a program in which the NTH of these
//! system calls fails, counted over all its threads, from the first instruction of its `main`.
//! `testkit::failing` writes these words, and reads what REPORT says in the end.
//!
//! A filter (seccomp) stops the program at these calls only, so that the others take no time, and
//! ptrace changes the one that is meant. strace would count for each thread on its own.

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
    use std::path::Path;
    use std::process::{Command, ExitCode};

    use nix::libc;
    use nix::sys::ptrace::{self, Event, Options};
    use nix::sys::signal::{Signal, raise};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    use testkit::failing::{self, Effect, STANDARD_OUTPUTS};

    type Failure = Box<dyn Error>;

    /// The first word of the process that becomes the program.
    const TRACED: &str = "--traced";

    /// Exit code of a tracer that failed itself: none of any program of ours.
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
        let text = |word: &OsString| word.to_str().map(str::to_owned).ok_or("a word that is not text");
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
        };
        let code = tracer.follow()?;
        std::fs::write(Path::new(report), failing::report(&tracer.counts))?;
        Ok(code)
    }

    fn numbers(calls: &OsString) -> Result<Vec<i64>, Failure> {
        let calls = calls.to_str().ok_or("numbers")?;
        Ok(calls.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Stops until the tracer is ready, installs the filter, which stays, and becomes the program.
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
        /// True from the program's `main` on: what its loader does is not the program's.
        has_begun: bool,
        nth: u64,
        effect: Effect,
        calls: Vec<i64>,
        counts: BTreeMap<i64, u64>,
    }

    impl Tracer {
        /// Returns the exit code of the program, as a shell shows it.
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
            // Each thread begins with a stop of its own, which is the tracer's.
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

        /// Counts the call at which `thread` stops, and changes it if it is the one.
        fn meet(&mut self, thread: Pid) -> Result<(), Failure> {
            let mut registers = match ptrace::getregs(thread) {
                Err(nix::Error::ESRCH) => return Ok(()),
                other => other?,
            };
            let call = registers.orig_rax.cast_signed();
            // The standard library looks at its descriptors first of all, with poll(2).
            self.has_begun |= call == libc::SYS_poll;
            if !self.has_begun || !self.calls.contains(&call) || !self.is_meant(thread, call, registers.rdi) {
                return Ok(());
            }
            *self.counts.entry(call).or_default() += 1;
            let number: u64 = self.counts.values().sum();
            match self.effect {
                Effect::None => return Ok(()),
                Effect::Once(_) | Effect::Short if number != self.nth => return Ok(()),
                Effect::Forever(_) if number < self.nth => return Ok(()),
                Effect::Once(errno) | Effect::Forever(errno) => {
                    // No call has this number: nothing is done.
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

        /// False for what is not data of the program: its words on standard output and error,
        /// where a test looks for a sentence, and descriptors of the runtime itself (eventfd,
        /// epoll), where the kernel has none of these errors. Nor for sockets that would do a part
        /// of what they can.
        fn is_meant(&self, thread: Pid, call: i64, descriptor: u64) -> bool {
            if !failing::TRANSFERS.contains(&call) {
                return true;
            }
            let link = std::fs::read_link(format!("/proc/{thread}/fd/{descriptor}"));
            let is_of = |kind| link.as_ref().is_ok_and(|file| file.to_string_lossy().starts_with(kind));
            let is_left_out = STANDARD_OUTPUTS.contains(&descriptor)
                || is_of("anon_inode:")
                || (self.effect == Effect::Short && is_of("socket:"));
            !is_left_out
        }
    }

    /// A thread that was killed in the meantime is not there any more.
    fn resume(thread: Pid, signal: Option<Signal>) -> Result<(), Failure> {
        match ptrace::cont(thread, signal) {
            Err(nix::Error::ESRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}
