//! nbdkit with the plugin for VMware's library, as a child process that ends with the importer.
//!
//! nbdkit is the only program that the importer starts. Neither nbdkit nor the library is part of
//! our image: the library comes from the user's side-car image, and both are trusted as far as
//! that image is trusted.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fetch::error::invalid_error;
use stream::error::{SourceError, SourceErrorKind, errno_text};
use tokio_util::sync::CancellationToken;

use super::log::ProgramLog;
use super::program::{ProgramState, RunningProgram};

/// Command that makes this program a keeper: a process that runs the program named after it, and
/// ends that program when the keeper's own standard input ends.
pub const RUN_WITH_PARENT: &str = "run-with-parent";

/// The keeper: the importer itself.
const KEEPER: &str = "/proc/self/exe";

/// The program that reads VMware disks, with VMware's library.
pub(super) const NBDKIT: &str = "nbdkit";

/// Folder of the library's shared objects, in its directory.
pub(super) const OBJECTS: &str = "lib64";

/// Names of the library that nbdkit 1.42 looks for, newest first (plugins/vddk/vddk.c).
const NAMES_OF_NBDKIT: [&str; 3] =
    ["libvixDiskLib.so.8", "libvixDiskLib.so.7", "libvixDiskLib.so.6"];

/// Name of version 9 of the library, which has the interface of version 8.
const VERSION_9: &str = "libvixDiskLib.so.9";

/// Paths of the library and of its plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VddkInstallation {
    /// Directory of VMware's library, which is in its folder `lib64`. Not needed with a plugin for
    /// tests.
    pub library: PathBuf,
    /// A mock plugin, which is used instead of `vddk` if the file exists.
    pub test_plugin: PathBuf,
    /// A file with more options for the library, which is used if it exists.
    pub config_file: PathBuf,
}

impl Default for VddkInstallation {
    fn default() -> Self {
        Self::of_pod(|path| path.into())
    }
}

impl VddkInstallation {
    /// Returns the paths in a CDI pod; `at` maps absolute paths of the pod.
    pub fn of_pod(at: impl Fn(&str) -> PathBuf) -> Self {
        Self {
            library: at("/opt/vmware-vix-disklib-distrib"),
            test_plugin: at("/opt/testing/libvddk-test-plugin.so"),
            config_file: at("/vddk-args/vddk-config-file"),
        }
    }
}

/// Parameters of the plugin, for one disk.
pub(super) struct NbdkitDisk<'a> {
    pub(super) server: &'a str,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    pub(super) thumbprint: Option<&'a str>,
    pub(super) machine: &'a str,
    pub(super) snapshot: Option<&'a str>,
    pub(super) file: &'a str,
}

/// A running nbdkit.
pub(super) struct NbdkitProcess {
    program: RunningProgram,
    folder: PrivateFolder,
}

impl VddkInstallation {
    /// True if the side-car image contains a plugin for tests.
    pub(super) fn is_for_tests(&self) -> bool {
        self.test_plugin.exists()
    }

    fn plugin_path(&self) -> PathBuf {
        if self.is_for_tests() { self.test_plugin.clone() } else { "vddk".into() }
    }

    /// Checks that the library exists and that nbdkit can load the plugin.
    fn check_installation(&self, stop: &CancellationToken) -> Result<(), SourceError> {
        // CDI's image for tests contains a plugin and a disk, but no library.
        if !self.is_for_tests() && !self.library.join(OBJECTS).is_dir() {
            return Err(invalid_error(format!(
                "the VDDK library is missing: {} not found. It comes from a sidecar image, which is set in the ConfigMap v2v-vmware or \
                 in initImageURL of the DataVolume. VMware closed its public download in August 2026; --transport nfc needs no library",
                self.library.join(OBJECTS).display()
            )));
        }
        let mut probe = self.nbdkit_command();
        probe.arg("--dump-plugin").arg(self.plugin_path());
        probe.arg(path_argument("libdir=", &self.library));
        let mut probe = start_program(&mut probe, CancellationToken::new())?;
        let state = match probe.wait_for_ready(stop, || false)? {
            ProgramState::Ended(status) if status.success() => return Ok(()),
            state => state,
        };
        probe.end_process();
        let message =
            format!("nbdkit cannot load its plugin vddk and {state}: {}", probe.log.last_line());
        Err(invalid_error(message))
    }

    /// Returns the command for nbdkit, without arguments yet.
    fn nbdkit_command(&self) -> Command {
        let mut command = Command::new(KEEPER);
        command.arg(RUN_WITH_PARENT).arg(NBDKIT);
        // Without this variable, the plugin sets it and executes nbdkit again, which then gets the
        // password through a file in /tmp.
        command.env("LD_LIBRARY_PATH", self.library.join(OBJECTS));
        command
    }

    /// Lets nbdkit find version 9 of the library: `folder` becomes a copy of its directory, made of
    /// links, in which the library also has the name that nbdkit 1.42 looks for.
    fn link_version_9(&mut self, folder: &PrivateFolder) -> io::Result<()> {
        let objects = self.library.join(OBJECTS);
        let known = NAMES_OF_NBDKIT.iter().any(|name| objects.join(name).exists());
        if known || !objects.join(VERSION_9).exists() {
            return Ok(());
        }
        // The library looks for its own plugins below the directory that nbdkit gives to it.
        let copy = folder.0.join("vddk");
        fs::create_dir_all(copy.join(OBJECTS))?;
        for part in ["", OBJECTS] {
            for entry in fs::read_dir(self.library.join(part))? {
                let entry = entry?;
                if part == OBJECTS || entry.file_name() != OBJECTS {
                    symlink(entry.path(), copy.join(part).join(entry.file_name()))?;
                }
            }
        }
        symlink(objects.join(VERSION_9), copy.join(OBJECTS).join(NAMES_OF_NBDKIT[0]))?;
        tracing::info!("nbdkit gets {VERSION_9} under the name {}", NAMES_OF_NBDKIT[0]);
        self.library = copy;
        Ok(())
    }

    fn nbdkit_arguments(&self, disk: &NbdkitDisk<'_>, folder: &PrivateFolder) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            ["--foreground", "--readonly", "--verbose"].map(Into::into).into();
        arguments.extend(["--filter=retry", "--filter=cacheextents"].map(Into::into));
        // Turns off messages that are written for each request, which would outnumber all others.
        arguments.extend(["-D", "nbdkit.backend.datapath=0"].map(Into::into));
        arguments.extend(["-D", "vddk.datapath=0", "-D", "vddk.stats=1"].map(Into::into));
        arguments.extend(["--unix".into(), folder.socket_path().into_os_string()]);
        arguments.extend(["--pidfile".into(), folder.pid_path().into_os_string()]);
        arguments.push(self.plugin_path().into_os_string());
        arguments.push(path_argument("libdir=", &self.library));
        arguments.push(format!("server={}", disk.server).into());
        arguments.push(format!("user={}", disk.user).into());
        // The password is passed in a file, because other users can see the arguments of a process
        // (nbdkit-vddk-plugin(1)).
        arguments.push(path_argument("password=+", &folder.password_path()));
        if let Some(thumbprint) = disk.thumbprint {
            arguments.push(format!("thumbprint={thumbprint}").into());
        }
        arguments.push(format!("vm=moref={}", disk.machine).into());
        if let Some(snapshot) = disk.snapshot {
            arguments.push(format!("snapshot={snapshot}").into());
            arguments.push("transports=file:nbdssl:nbd".into());
        }
        if self.config_file.exists() {
            arguments.push(path_argument("config=", &self.config_file));
        }
        arguments.push(format!("file={}", disk.file).into());
        arguments
    }
}

fn start_program(
    command: &mut Command,
    gone: CancellationToken,
) -> Result<RunningProgram, SourceError> {
    RunningProgram::start(command, gone).map_err(|error| {
        let reason = errno_text(&error);
        invalid_error(format!("cannot start {NBDKIT}, which reads VMware disks: {reason}"))
    })
}

fn path_argument(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text
}

impl NbdkitProcess {
    /// Starts nbdkit and waits until it listens. Cancels `gone` when nbdkit ends.
    pub(super) fn start(
        installation: &VddkInstallation,
        disk: &NbdkitDisk<'_>,
        stop: &CancellationToken,
        gone: CancellationToken,
    ) -> Result<Self, SourceError> {
        let mut installation = installation.clone();
        let folder = PrivateFolder::create(disk.password).and_then(|folder| {
            installation.link_version_9(&folder)?;
            Ok(folder)
        });
        let folder = folder.map_err(|error| {
            let message = format!("cannot prepare a folder for nbdkit: {}", errno_text(&error));
            SourceError::new(SourceErrorKind::Io, message)
        })?;
        installation.check_installation(stop)?;
        let mut command = installation.nbdkit_command();
        command.args(installation.nbdkit_arguments(disk, &folder));
        let program = start_program(&mut command, gone)?;
        let mut nbdkit = Self { program, folder };
        // nbdkit writes this file when it listens. Connecting to the socket instead would make
        // nbdkit complain about that connection.
        let pid = nbdkit.folder.pid_path();
        let state = nbdkit.program.wait_for_ready(stop, || pid.exists())?;
        if !matches!(state, ProgramState::Ready) {
            // End nbdkit first: the log is complete only when the pipe is at its end.
            nbdkit.program.end_process();
            let message = format!("nbdkit {state}: {}", nbdkit.program.log.last_errors());
            return Err(SourceError::new(SourceErrorKind::Connect, message));
        }
        // nbdkit has read the password by now. The importer would leave the file behind if it were
        // killed.
        nbdkit.folder.forget_password();
        Ok(nbdkit)
    }

    /// Returns the path of nbdkit's socket.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.socket_path()
    }

    /// Returns the log, which remains after nbdkit has ended.
    pub(super) fn program_log(&self) -> ProgramLog {
        self.program.log.clone()
    }
}

/// Ends nbdkit. The log is complete afterwards.
impl Drop for NbdkitProcess {
    fn drop(&mut self) {
        self.program.end_process();
        self.program.log.log_lines();
    }
}

/// A directory that only this user can access, with the socket and, for a moment, the password.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn create(password: &str) -> io::Result<Self> {
        let folder = Self(Self::create_folder(&format!("cdi-vddk-{:016x}", fastrand::u64(..)))?);
        let mut file: File = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.password_path())?;
        file.write_all(password.as_bytes())?;
        Ok(folder)
    }

    /// Creates the directory `name` in the first place that can be written. A pod whose root
    /// filesystem is read-only has no `/tmp`, but every runtime mounts `/dev/shm`.
    fn create_folder(name: &str) -> io::Result<PathBuf> {
        let mut failed = None;
        for parent in [std::env::temp_dir(), "/dev/shm".into()] {
            let path = parent.join(name);
            // Fails if a file of that name exists already.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(path),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn socket_path(&self) -> PathBuf {
        self.0.join("nbd.sock")
    }

    fn pid_path(&self) -> PathBuf {
        self.0.join("nbd.pid")
    }

    fn password_path(&self) -> PathBuf {
        self.0.join("password")
    }

    fn forget_password(&self) {
        if let Err(error) = fs::remove_file(self.password_path()) {
            tracing::warn!("cannot remove the password for nbdkit: {}", errno_text(&error));
        }
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!("cannot remove {}: {}", self.0.display(), errno_text(&error));
        }
    }
}
