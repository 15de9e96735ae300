//! Signals, sent to a real child process: this test binary, started again to run [`child`].
#![expect(clippy::unwrap_used, reason = "a failure must fail the test, also in its helpers")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use program::env::{NamedStrings, ProcessEnv};
use program::signal;
use rustix::process::{Pid, Signal, kill_process};

/// Marks the child process; the value says what it does after the first signal: `stop` or `hang`.
const CHILD_VARIABLE: &str = "DAEMON_TEST_SIGNAL_CHILD";

/// Not a claim by itself: the body of the child process, which does nothing in the parent.
#[test]
fn child() {
    let Some(behaviour) = ProcessEnv.get(CHILD_VARIABLE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let code = runtime.block_on(async {
        let shutdown = signal::watch_signals().unwrap();
        assert_eq!(shutdown.first_signal(), None);
        println!("\nready");
        shutdown.cancel_token().cancelled().await;
        println!("\nstopping");
        if behaviour == "hang" {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        shutdown.first_signal().map_or(0, signal::StopSignal::exit_code)
    });
    std::process::exit(code.into());
}

struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// The tests themselves may run under nohup, which ignores SIGHUP.
    fn start(behaviour: &str) -> Self {
        let mut env = Command::new("env");
        env.arg("--default-signal=HUP").arg(std::env::current_exe().unwrap());
        Self::start_by(&mut env, behaviour)
    }

    fn start_by(command: &mut Command, behaviour: &str) -> Self {
        let mut child = command
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD_VARIABLE, behaviour)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Self { child, lines };
        running.wait_for("ready");
        running
    }

    fn wait_for(&mut self, word: &str) {
        assert!(
            self.lines.any(|line| line.unwrap() == word),
            "the child ended before it said {word}"
        );
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[test]
fn the_first_signal_stops_the_process_and_sets_its_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let child = Running::start("stop");
        child.send(signal);
        assert_eq!(child.exit_code(), Some(code));
    }
}

/// GNU timeout sends its signal twice, so the second one counts only half a second later.
#[test]
fn a_later_signal_ends_a_process_that_hangs() {
    let mut running = Running::start("hang");
    let began = Instant::now();
    running.send(Signal::TERM);
    running.wait_for("stopping");
    while running.child.try_wait().unwrap().is_none() {
        running.send(Signal::INT);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(running.exit_code(), Some(130));
}

#[test]
fn a_hangup_is_ignored_if_it_was_at_the_start() {
    let mut running =
        Running::start_by(Command::new("nohup").arg(std::env::current_exe().unwrap()), "stop");
    running.send(Signal::HUP);
    running.send(Signal::TERM);
    running.wait_for("stopping");
    assert_eq!(running.exit_code(), Some(143));
}
