//! A stand-in for the pod of a populator.

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Content, Image, Spec};
use testkit::process::{Finished, Program};
use testkit::{ports, tools};

pub(crate) const MIB: u64 = 1 << 20;

/// Exit code of upstream's programs that fail.
pub(crate) const FATAL: i32 = 255;

/// Part of every secret of these tests, which no output may contain.
pub(crate) const HIDDEN: &str = "s3cret";

pub(crate) struct Pod {
    folder: TempDir,
    program: PathBuf,
    pub(crate) flags: Vec<String>,
    pub(crate) secret: Vec<(&'static str, String)>,
    pub(crate) metrics: SocketAddr,
}

impl Pod {
    /// A pod whose program has this name, with a volume that has a filesystem.
    pub(crate) fn new(name: &str, flags: &[&str], secret: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        symlink(crate::BINARY, &program).unwrap();
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        let [metrics] = ports::free();
        let mut pod = Self {
            program,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            secret: Vec::new(),
            metrics,
            folder,
        };
        pod.flags.extend(
            ["--owner-uid=uid", "--secret-name=secret", "--pvc-size=1073741824"].map(str::to_owned),
        );
        pod.flags.push(format!("--volume-path={}", pod.disk().display()));
        for (key, value) in secret {
            pod.set(key, value);
        }
        pod
    }

    /// Sets a key of the secret.
    pub(crate) fn set(&mut self, key: &'static str, value: &str) {
        self.secret.push((key, value.to_owned()));
    }

    /// Adds a flag; of several flags with one name, the last one counts.
    pub(crate) fn with(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.folder().join("disk.img")
    }

    pub(crate) fn program(&self) -> Program {
        Program::new(&self.program)
            .args(&self.flags)
            .env("CDI_WORKERS_TEST_ROOT", self.folder())
            .env("CDI_WORKERS_TEST_METRICS_ADDR", self.metrics.to_string())
            .envs(&self.secret)
    }

    /// Runs the populator, and asserts that the file then is the disk `expected`, and that its
    /// group may write it.
    #[track_caller]
    pub(crate) fn assert_fills(&self, expected: &Path, case: &str) -> Finished {
        let finished = self.program().run();
        finished.assert_success(case);
        assert!(!finished.stderr.contains(HIDDEN), "{case}: {}", finished.stderr);
        let metadata = self.disk().metadata().unwrap();
        let length = expected.metadata().unwrap().len();
        assert_eq!(
            (metadata.len(), metadata.permissions().mode() & 0o777),
            (length, 0o660),
            "{case}"
        );
        disk::assert_same(&self.disk(), expected, length, case);
        finished
    }

    /// Asserts that the populator fails with this sentence, shows no secret and leaves no disk.
    #[track_caller]
    pub(crate) fn assert_refused(&self, sentence: &str) {
        let finished = self.program().run();
        finished.assert_failure(FATAL, sentence);
        let message = std::fs::read_to_string(self.folder().join("dev/termination-log")).unwrap();
        assert!(message.contains(sentence), "{message}");
        assert!(!finished.crashed() && !self.disk().exists(), "{}", finished.stderr);
        assert!(!finished.stderr.contains(HIDDEN), "{}", finished.stderr);
    }

    /// Scrapes the metrics as the controller does: the value of `name` with this one label.
    pub(crate) fn progress(&self, name: &str) -> Option<f64> {
        let output = Command::new(tools::find("curl"))
            .args(["--silent", "--insecure", "--noproxy", "*"])
            .arg(format!("https://{}/metrics", self.metrics))
            .output()
            .or_fail("curl");
        let text = String::from_utf8(output.stdout).or_fail("metrics");
        let series = format!("{name}{{ownerUID=\"uid\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series))?;
        let digits = value.split('.').next().unwrap_or_default();
        assert!((1..=3).contains(&digits.len()), "{value}");
        Some(value.parse().or_fail(value))
    }
}

/// A qcow2 image of a disk without zeros.
pub(crate) fn dense(folder: &Path) -> Image {
    Spec { virtual_size: 12 * MIB, ..Spec::new(Content::Dense) }.build(folder, "dense")
}
