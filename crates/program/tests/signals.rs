//! Signals, sent to a real child process: this test binary, started again to run [`child`].
#![expect(clippy::unwrap_used, reason = "a failure must fail the test, also in its helpers")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
    fn start(behaviour: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
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
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let child = Running::start("stop");
        child.send(signal);
        assert_eq!(child.exit_code(), Some(code));
    }
}

#[test]
fn the_second_signal_ends_a_process_that_hangs() {
    let mut child = Running::start("hang");
    child.send(Signal::TERM);
    child.wait_for("stopping");
    child.send(Signal::INT);
    assert_eq!(child.exit_code(), Some(130));
}
