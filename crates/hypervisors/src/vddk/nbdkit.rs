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
use std::process::{Command, ExitStatus};

use fetch::error::invalid_error;
use stream::error::{SourceError, SourceErrorKind, errno_text};
use tokio_util::sync::CancellationToken;

use super::body::VddkReadState;
use super::log::ProgramLog;
use super::program::RunningProgram;
use super::soap::require_credentials;

/// Command that makes this program a keeper: a process that runs the program named after it, and
/// ends that program when the keeper's own standard input ends.
pub const RUN_WITH_PARENT: &str = "run-with-parent";

/// The keeper: the importer itself.
const KEEPER: &str = "/proc/self/exe";

/// The program that reads VMware disks, with VMware's library.
pub(super) const NBDKIT: &str = "nbdkit";

/// Files in the folder of a running nbdkit.
const SOCKET: &str = "nbd.sock";
const PID_FILE: &str = "nbd.pid";
const PASSWORD_FILE: &str = "password";

/// Folder of the library's shared objects, in its directory.
const OBJECTS: &str = "lib64";

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

/// A running nbdkit.
pub(super) struct NbdkitProcess {
    program: RunningProgram,
    log: ProgramLog,
    folder: PrivateFolder,
}

impl VddkInstallation {
    /// True if the side-car image contains a plugin for tests.
    pub(super) fn is_for_tests(&self) -> bool {
        self.test_plugin.exists()
    }

    /// Returns the folder of the library's shared objects.
    pub(super) fn objects_path(&self) -> PathBuf {
        self.library.join(OBJECTS)
    }

    /// Checks that the library exists and that nbdkit can load the plugin.
    fn check_installation(&self, stop: &CancellationToken) -> Result<(), SourceError> {
        // CDI's image for tests contains a plugin and a disk, but no library.
        if !self.is_for_tests() && !self.objects_path().is_dir() {
            return Err(invalid_error(format!(
                "the VDDK library is missing: {} not found. It comes from a sidecar image, which is set in the ConfigMap v2v-vmware or \
                 in initImageURL of the DataVolume. VMware closed its public download in August 2026; --transport nfc needs no library",
                self.objects_path().display()
            )));
        }
        let log = ProgramLog::default();
        let command = self.nbdkit_command(|command| command.arg("--dump-plugin"));
        let mut probe = RunningProgram::start(command, &log, CancellationToken::new())?;
        let has_succeeded =
            |ended: Option<ExitStatus>| ended.is_some_and(|status| status.success());
        match probe.wait_for_ready(stop, has_succeeded)? {
            None => Ok(()),
            Some(state) => Err(invalid_error(format!(
                "nbdkit cannot load its plugin vddk and {state}: {}",
                log.last_line()
            ))),
        }
    }

    /// Returns the command for nbdkit with the options that `add` adds, the plugin and its library.
    fn nbdkit_command(&self, add: impl FnOnce(&mut Command) -> &mut Command) -> Command {
        let mut command = Command::new(KEEPER);
        // Without this variable, the plugin sets it and executes nbdkit again, which then gets the
        // password through a file in /tmp.
        command.arg(RUN_WITH_PARENT).arg(NBDKIT).env("LD_LIBRARY_PATH", self.objects_path());
        let plugin = if self.is_for_tests() { &*self.test_plugin } else { Path::new("vddk") };
        add(&mut command).arg(plugin).arg(path_argument("libdir=", &self.library));
        command
    }

    /// Lets nbdkit find version 9 of the library: `folder` becomes a copy of its directory, made of
    /// links, in which the library also has the name that nbdkit 1.42 looks for.
    fn link_version_9(&mut self, folder: &PrivateFolder) -> io::Result<()> {
        let objects = self.objects_path();
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

    /// Returns the command that serves the disk that `reading` describes.
    fn serving_command(
        &self,
        reading: &VddkReadState,
        user: &str,
        folder: &PrivateFolder,
    ) -> Command {
        let mut command = self.nbdkit_command(|command| {
            command
                .args(["--foreground", "--readonly", "--verbose"])
                .args(["--filter=retry", "--filter=cacheextents"])
                // Turns off messages that are written for each request, which would outnumber all
                // others.
                .args(["-D", "nbdkit.backend.datapath=0"])
                .args(["-D", "vddk.datapath=0", "-D", "vddk.stats=1"])
                .arg("--unix")
                .arg(folder.0.join(SOCKET))
                .arg("--pidfile")
                .arg(folder.0.join(PID_FILE))
        });
        let VddkReadState { options, found, .. } = reading;
        command.arg(format!("server={}", options.endpoint.host_str().unwrap_or_default()));
        command.arg(format!("user={user}"));
        // The password is passed in a file, because other users can see the arguments of a process
        // (nbdkit-vddk-plugin(1)).
        command.arg(path_argument("password=+", &folder.0.join(PASSWORD_FILE)));
        if let Some(thumbprint) = &options.access.thumbprint {
            command.arg(format!("thumbprint={thumbprint}"));
        }
        command.arg(format!("vm=moref={}", found.machine.name));
        if let Some(snapshot) = &found.snapshot {
            command.arg(format!("snapshot={}", snapshot.name)).arg("transports=file:nbdssl:nbd");
        }
        if self.config_file.exists() {
            command.arg(path_argument("config=", &self.config_file));
        }
        command.arg(format!("file={}", found.disk.file));
        command
    }
}

fn path_argument(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text
}

impl NbdkitProcess {
    /// Starts nbdkit for the disk that `reading` describes, and waits until it listens.
    pub(super) fn start(reading: &VddkReadState) -> Result<Self, SourceError> {
        let VddkReadState { options, network, log, gone, .. } = reading;
        let credentials = require_credentials(network.credentials.as_ref())?;
        let mut installation = options.access.installation.clone();
        let folder = PrivateFolder::create(credentials.password()).and_then(|folder| {
            installation.link_version_9(&folder)?;
            Ok(folder)
        });
        let folder = folder.map_err(|error| {
            let message = format!("cannot prepare a folder for nbdkit: {}", errno_text(&error));
            SourceError::new(SourceErrorKind::Io, message)
        })?;
        installation.check_installation(&network.stop)?;
        let command = installation.serving_command(reading, credentials.user(), &folder);
        let program = RunningProgram::start(command, log, gone.clone())?;
        let mut nbdkit = Self { program, log: log.clone(), folder };
        // nbdkit writes this file when it listens. Connecting to the socket instead would make
        // nbdkit complain about that connection.
        let pid = nbdkit.folder.0.join(PID_FILE);
        if let Some(state) = nbdkit.program.wait_for_ready(&network.stop, |_| pid.exists())? {
            let message = format!("nbdkit {state}: {}", log.last_errors());
            return Err(SourceError::new(SourceErrorKind::Connect, message));
        }
        // nbdkit has read the password by now. The importer would leave the file behind if it were
        // killed.
        if let Err(error) = fs::remove_file(nbdkit.folder.0.join(PASSWORD_FILE)) {
            tracing::warn!("cannot remove the password for nbdkit: {}", errno_text(&error));
        }
        Ok(nbdkit)
    }

    /// Returns the path of nbdkit's socket.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.0.join(SOCKET)
    }
}

/// Ends nbdkit. The log is complete afterwards.
impl Drop for NbdkitProcess {
    fn drop(&mut self) {
        self.program.end_process();
        self.log.log_lines();
    }
}

/// A directory that only this user can access, with the socket and, for a moment, the password.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Creates the directory in the first place that can be written. A pod whose root filesystem is
    /// read-only has no `/tmp`, but every runtime mounts `/dev/shm`.
    fn create(password: &str) -> io::Result<Self> {
        let name = format!("cdi-vddk-{:016x}", fastrand::u64(..));
        let create_in = |parent: PathBuf| {
            let path = parent.join(&name);
            // Fails if a file of that name exists already.
            DirBuilder::new().mode(0o700).create(&path).map(|()| Self(path))
        };
        let folder = create_in(std::env::temp_dir())
            .or_else(|first| create_in("/dev/shm".into()).map_err(|_| first))?;
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.0.join(PASSWORD_FILE))?;
        file.write_all(password.as_bytes())?;
        Ok(folder)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!("cannot remove {}: {}", self.0.display(), errno_text(&error));
        }
    }
}
