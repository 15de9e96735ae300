//! The folder of an import, and the commands and assertions of these tests.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::docker_registry::{PASSWORD, USER};
use testkit::fail::OrFail;
use testkit::gateway::Gateway;
use testkit::process::{Finished, Program};

/// Exit code of a source that failed.
pub(crate) const SOURCE_FAILED: i32 = 3;

/// Exit code of an image that is corrupt or refused.
pub(crate) const IMAGE_REFUSED: i32 = 4;

/// Exit code of a usage error.
pub(crate) const USAGE: i32 = 2;

pub(crate) const MIB: u64 = 1 << 20;

/// A folder for the target and other files of an import.
pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// `import` of `reference`, without verified certificates; plain HTTP is allowed too.
    pub(crate) fn import(&self, reference: &str) -> Program {
        // The architecture is fixed, so that the tests do not depend on the machine.
        self.import_for(reference, "amd64")
    }

    /// Like `import`, for another architecture than the usual one of the tests.
    pub(crate) fn import_for(&self, reference: &str, architecture: &str) -> Program {
        let program = self.command(reference, architecture);
        // The option is refused for local files, such as a layout and its tar.
        if reference.starts_with("oci") { program } else { program.arg("--insecure") }
    }

    /// `import` of `reference` over verified TLS.
    pub(crate) fn strict_import(&self, reference: &str) -> Program {
        // The architecture is fixed, so that the tests do not depend on the machine.
        self.command(reference, "amd64")
    }

    fn command(&self, reference: &str, architecture: &str) -> Program {
        Program::new(crate::BINARY)
            .args(["import", reference])
            .arg(self.disk())
            .args(["--architecture", architecture])
    }

    /// The options that trust `authority`.
    pub(crate) fn trusting(&self, authority: &Authority) -> [std::ffi::OsString; 2] {
        let folder = self.path("authorities");
        std::fs::create_dir_all(&folder).or_fail("a folder for authorities");
        std::fs::write(folder.join("ca.crt"), authority.pem()).or_fail("an authority");
        ["--ca-dir".into(), folder.into()]
    }

    /// The options with name and password of the registry's user.
    pub(crate) fn as_user(&self) -> [std::ffi::OsString; 4] {
        self.as_user_with(PASSWORD)
    }

    pub(crate) fn as_user_with(&self, password: &str) -> [std::ffi::OsString; 4] {
        let file = self.path("password");
        std::fs::write(&file, password).or_fail("a password");
        ["--user".into(), USER.into(), "--password-file".into(), file.into()]
    }

    /// Asserts that `program` makes a disk of these bytes.
    #[track_caller]
    pub(crate) fn assert_imports(&self, program: Program, expected: &[u8], case: &str) -> Finished {
        let finished = program.run();
        finished.assert_success(case);
        let disk = std::fs::read(self.disk()).or_fail(case);
        assert!(disk == expected, "{case}: the disk differs\n{}", finished.stderr);
        std::fs::remove_file(self.disk()).or_fail(case);
        finished
    }

    /// Asserts that `program` ends with this exit code and this text, and leaves no target.
    #[track_caller]
    pub(crate) fn assert_refused(&self, program: Program, code: i32, text: &str) -> Finished {
        let finished = program.run();
        finished.assert_failure(code, text);
        assert!(!self.disk().exists(), "{text}: a target was left behind");
        finished
    }
}

/// The reference of the image `name` behind a gateway.
pub(crate) fn behind(gateway: &Gateway, name: &str) -> String {
    format!("docker://{}/{name}", gateway.address())
}

/// The reference of an archive.
pub(crate) fn archive(path: &Path) -> String {
    format!("oci-archive:{}", path.display())
}
