//! A stand-in for the pod of an import. `tests/sources` uses it too.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};

/// A folder that stands in for the file system of a pod.
pub(crate) struct Pod {
    pub(crate) root: TempDir,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) metrics: String,
}

impl Pod {
    /// A pod in filesystem mode, with the environment that every pod gets and `env` on top.
    pub(crate) fn new(env: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().or_fail("a folder");
        for folder in ["data", "dev", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).or_fail(folder);
        }
        // Whatever a killed pod leaves in its temporary folder is removed with this one.
        let temporary = root.path().join("tmp");
        let metrics = free_address();
        let basic = [
            ("CDI_WORKERS_TEST_ROOT", root.path().to_str().or_fail("a path of ASCII")),
            ("CDI_WORKERS_TEST_METRICS_ADDR", metrics.as_str()),
            ("TMPDIR", temporary.to_str().or_fail("a path of ASCII")),
            ("CDI_WORKERS_CONTACT_SECONDS", "3"),
            ("IMPORTER_CONTENTTYPE", "kubevirt"),
            ("OWNER_UID", "uid"),
            ("PREALLOCATION", "false"),
            ("FILESYSTEM_OVERHEAD", "0.06"),
            ("INSECURE_TLS", "false"),
            ("CACHE_MODE", ""),
        ];
        let env = basic
            .iter()
            .chain(env)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self { root, env, metrics }
    }

    /// A pod that imports `url`.
    pub(crate) fn http(url: &str, env: &[(&str, &str)]) -> Self {
        let source = [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", url)];
        Self::new(&[&source, env].concat())
    }

    /// Sets an environment variable.
    #[expect(clippy::needless_pass_by_value, reason = "callers give temporary values")]
    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.unset(name);
        self.env.push((name.to_owned(), value.to_string()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.path("data/disk.img")
    }

    pub(crate) fn program(&self) -> Program {
        Program::new(crate::BINARY).args(["-alsologtostderr", "-v=3"]).envs(&self.env)
    }

    pub(crate) fn run(&self) -> Finished {
        self.program().run()
    }

    /// The termination message, if one was written.
    pub(crate) fn message(&self) -> Option<String> {
        std::fs::read_to_string(self.path("dev/termination-log")).ok()
    }

    #[track_caller]
    pub(crate) fn assert_fails_with(&self, message: &str) {
        let finished = self.run();
        assert_eq!(
            (finished.code(), self.message().as_deref()),
            (1, Some(message)),
            "{}",
            finished.stderr
        );
        assert!(!finished.crashed() && !self.disk().exists(), "{}", finished.stderr);
    }

    #[track_caller]
    pub(crate) fn assert_succeeds_with(&self, message: &str) -> Finished {
        let finished = self.run();
        assert_eq!(
            (finished.code(), self.message().as_deref()),
            (0, Some(message)),
            "{}",
            finished.stderr
        );
        finished
    }
}

/// A loopback address on which nothing listens at the moment.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    listener.local_addr().or_fail("its address").to_string()
}

pub(crate) fn serve(script: Script) -> Origin {
    Origin::start(script).or_fail("an origin")
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().or_fail("a folder")).or_fail("create a folder");
    std::fs::write(path, text).or_fail("write a file");
}

pub(crate) const SUCCESS: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

pub(crate) const MIB: u64 = 1 << 20;
