//! Programs that run as long as this process. A `static` may hold them, although it is never
//! dropped.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};

use super::{Program, Running};
use crate::fail::OrFail;
use crate::wait;

/// A program to start, and the channel to the caller that waits for it.
type Order = (Program, Sender<Running>);

/// Starts `program` so that the kernel kills it when this process ends for any reason.
///
/// The kernel does so when the *thread* that started the program ends (PR_SET_PDEATHSIG,
/// prctl(2)). Threads of tests end early, so a thread that never ends starts the program.
pub fn start(program: Program) -> Running {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (starter, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (program, waiting) in orders {
                // If the program does not start, the channel is dropped, and that fails the
                // caller's test.
                let start = std::panic::AssertUnwindSafe(|| program.start());
                if let Ok(running) = std::panic::catch_unwind(start) {
                    waiting.send(running).ok();
                }
            }
        });
        starter
    });
    let (waiting, started) = mpsc::channel();
    let program = program.beside_others().under("setpriv", ["--pdeathsig", "KILL"]);
    starter.send((program, waiting)).or_fail("the thread that starts programs");
    started.recv().or_fail("a program that lasts did not start")
}

/// Starts `program` and waits until `probe`, which gets the program's log, returns something.
/// Fails the test with the log if the program ends first.
pub fn start_server<T>(program: Program, mut probe: impl FnMut(&str) -> Option<T>) -> (T, Running) {
    let running = start(program);
    let complaint = || format!("a server is not ready:\n{}", running.stderr_so_far());
    let found = wait::find(complaint, || {
        assert!(!running.has_ended(), "{}", complaint());
        probe(&running.stderr_so_far())
    });
    (found, running)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Set in the inner process, which the test below starts and which ends at once.
    const INNER: &str = "TESTKIT_LASTING_INNER";

    #[test]
    fn a_lasting_program_outlives_its_thread_but_not_its_process() {
        let sleep = || Program::new("/bin/sh").args(["-c", "echo started >&2; exec sleep 600"]);
        let running = std::thread::spawn(move || start(sleep())).join().unwrap();
        running.wait_for_line("started");
        let pid = running.pid().as_raw_nonzero();
        if std::env::var_os(INNER).is_some() {
            eprintln!("lasting {pid}");
            std::process::exit(0);
        }
        assert!(PathBuf::from(format!("/proc/{pid}")).exists());
        running.signal(rustix::process::Signal::KILL);

        let inner = Program::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg(std::thread::current().name().unwrap_or_default().to_owned())
            .env(INNER, "1")
            .start()
            .wait();
        let pid = inner.stderr.split("lasting ").nth(1).or_fail(&inner.stderr).trim();
        let entry = PathBuf::from(format!("/proc/{pid}"));
        let complaint = || format!("{pid} still runs");
        wait::until(complaint, || !entry.exists());
    }
}
