//! nbdkit with the plugin for VMware's library, as a child process that ends with the importer.
//!
//! nbdkit is the only program that the importer starts. Neither nbdkit nor the library is part of
//! our image: the library comes from the user's side-car image, and both are trusted as far as
//! that image is trusted.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fetch::error::{invalid_error, stopped_error};
use program::env::{NamedStrings, ProcessEnv};
use stream::error::{SourceError, SourceErrorKind, ThreadStartError, errno_text};
use tokio_util::sync::CancellationToken;

use super::log::ProgramLog;
use super::options::{OBJECTS, VddkInstallation, VddkSourceOptions};
use super::reading::VddkReadState;
use super::soap::require_credentials;

/// Command that makes this program a keeper: a process that runs the program named after it, and
/// ends that program when the keeper's own standard input ends.
pub const RUN_WITH_PARENT: &str = "run-with-parent";

/// The keeper: the importer itself.
const KEEPER: &str = "/proc/self/exe";

/// The program that reads VMware disks, with VMware's library.
pub(super) const NBDKIT: &str = "nbdkit";

/// The files in the folder of a running nbdkit. It writes the second one when it listens.
const SOCKET: &str = "nbd.sock";
const PID_FILE: &str = "nbd.pid";
const PASSWORD_FILE: &str = "password";

/// Names of the library that nbdkit 1.42 looks for, newest first (plugins/vddk/vddk.c).
const NAMES_OF_NBDKIT: [&str; 3] =
    ["libvixDiskLib.so.8", "libvixDiskLib.so.7", "libvixDiskLib.so.6"];

/// Name of version 9 of the library, which has the interface of version 8.
const VERSION_9: &str = "libvixDiskLib.so.9";

/// Longest time until nbdkit listens. It loads the library first, but connects to vSphere only
/// when a client connects.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Longest time for nbdkit to close the disk before it is killed.
pub const END_LIMIT: Duration = Duration::from_secs(5);

/// Time for a keeper to kill nbdkit and report that, before the keeper is killed itself.
const KEEPER_LIMIT: Duration = Duration::from_secs(1);

/// Prefixes of environment variables that nbdkit and the library do not get, because some of them
/// hold passwords.
const SECRET_PREFIXES: [&str; 3] = ["IMPORTER_", "AWS_", "GOOGLE_"];

/// Pause between two checks of nbdkit while it starts or ends. It is ready after some 30 ms.
const POLL: Duration = Duration::from_millis(5);

/// Time for a signal that has ended the program to reach the importer as well.
const SIGNAL_DELAY: Duration = Duration::from_millis(200);

impl VddkInstallation {
    /// Returns the directory of the library for nbdkit. For version 9 it is a copy of the directory
    /// in `folder`, made of links, in which the library also has the name that nbdkit 1.42 looks
    /// for.
    fn linked_library(&self, folder: &PrivateFolder) -> io::Result<PathBuf> {
        let objects = self.objects_path();
        let known = NAMES_OF_NBDKIT.iter().any(|name| objects.join(name).exists());
        if known || !objects.join(VERSION_9).exists() {
            return Ok(self.library.clone());
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
        Ok(copy)
    }
}

/// Returns the command that serves the disk that `reading` describes, and the folder that it needs.
fn prepare_command(reading: &VddkReadState) -> Result<(Command, PrivateFolder), SourceError> {
    let VddkReadState { options, network, found, .. } = reading;
    let VddkSourceOptions { installation, thumbprint, .. } = &options.access;
    let credentials = require_credentials(network.credentials.as_ref())?;
    // CDI's image for tests contains a plugin and a disk, but no library.
    if !installation.is_for_tests() && !installation.objects_path().is_dir() {
        return Err(invalid_error(format!(
            "the VDDK library is missing: {} not found. It comes from a sidecar image, which is set in the ConfigMap v2v-vmware or \
             in initImageURL of the DataVolume. VMware closed its public download in August 2026; --transport nfc needs no library",
            installation.objects_path().display()
        )));
    }
    let prepared = PrivateFolder::create(credentials.password()).and_then(|folder| {
        let library = installation.linked_library(&folder)?;
        Ok((folder, library))
    });
    let (folder, library) = prepared.map_err(|error| {
        let message = format!("cannot prepare a folder for nbdkit: {}", errno_text(&error));
        SourceError::new(SourceErrorKind::Io, message)
    })?;
    let mut command = Command::new(KEEPER);
    command.arg(RUN_WITH_PARENT).arg(NBDKIT);
    // Without this variable, the plugin sets it and executes nbdkit again, which then gets the
    // password through a file in /tmp.
    command.env("LD_LIBRARY_PATH", library.join(OBJECTS));
    command.args(["--foreground", "--readonly", "--verbose"]);
    command.args(["--filter=retry", "--filter=cacheextents"]);
    // Turns off messages that are written for each request, which would outnumber all others.
    command.args(["-D", "nbdkit.backend.datapath=0"]);
    command.args(["-D", "vddk.datapath=0", "-D", "vddk.stats=1"]);
    command.arg("--unix").arg(folder.0.join(SOCKET)).arg("--pidfile").arg(folder.0.join(PID_FILE));
    command.arg(match installation.is_for_tests() {
        true => &*installation.test_plugin,
        false => Path::new("vddk"),
    });
    command.arg(path_argument("libdir=", &library));
    command.arg(format!("server={}", options.endpoint.host_str().unwrap_or_default()));
    command.arg(format!("user={}", credentials.user()));
    // The password is passed in a file, because other users can see the arguments of a process
    // (nbdkit-vddk-plugin(1)).
    command.arg(path_argument("password=+", &folder.0.join(PASSWORD_FILE)));
    if let Some(thumbprint) = thumbprint {
        command.arg(format!("thumbprint={thumbprint}"));
    }
    command.arg(format!("vm=moref={}", found.machine.name));
    if let Some(snapshot) = &found.snapshot {
        command.arg(format!("snapshot={}", snapshot.name)).arg("transports=file:nbdssl:nbd");
    }
    if installation.config_file.exists() {
        command.arg(path_argument("config=", &installation.config_file));
    }
    command.arg(format!("file={}", found.disk.file));
    Ok((command, folder))
}

fn path_argument(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text
}

/// A running nbdkit. Dropping it ends nbdkit, and the log is complete afterwards.
pub(super) struct NbdkitProcess {
    /// A keeper, which runs nbdkit and ends it when the keeper's input ends: at the latest when the
    /// importer ends.
    child: Child,
    log: Arc<ProgramLog>,
    /// The thread that reads the log.
    reader: Option<JoinHandle<()>>,
    folder: PrivateFolder,
}

impl NbdkitProcess {
    /// Starts nbdkit for the disk that `reading` describes, and waits until it listens. It gets the
    /// environment that it needs, but not the keys and passwords of the pod.
    pub(super) fn start(reading: &VddkReadState) -> Result<Self, SourceError> {
        let (mut command, folder) = prepare_command(reading)?;
        for (name, _) in SECRET_PREFIXES.iter().flat_map(|prefix| ProcessEnv.with_prefix(prefix)) {
            command.env_remove(name);
        }
        let failed = |error: io::Error| {
            let reason = errno_text(&error);
            invalid_error(format!("cannot start {NBDKIT}, which reads VMware disks: {reason}"))
        };
        let mut child = command
            // Ctrl-C must reach only the importer: it would end the program first, and the import
            // would fail before it is stopped.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (log, gone) = (Arc::clone(&reading.log), reading.gone.clone());
        let pipe = child.stderr.take();
        let mut nbdkit = Self { child, log: Arc::clone(&log), reader: None, folder };
        let reader = thread::Builder::new().spawn(move || {
            // The pipe ends when the last process that can write to it has ended.
            if let Some(pipe) = pipe {
                log.follow_pipe(pipe);
            }
            gone.cancel();
        });
        let reader = reader.map_err(|error| failed(io::Error::other(ThreadStartError(error))))?;
        nbdkit.reader = Some(reader);
        nbdkit.wait_until_ready(&reading.network.stop)?;
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

    fn wait_until_ready(&mut self, stop: &CancellationToken) -> Result<(), SourceError> {
        // Connecting to the socket instead would make nbdkit complain about that connection.
        let (listens, mut ended) = (self.folder.0.join(PID_FILE), None);
        wait_until(START_LIMIT, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || stop.is_cancelled() || listens.exists()
        });
        if listens.exists() {
            return Ok(());
        }
        // A signal to all processes of a pod or a terminal may end the program before the
        // importer's own handler runs.
        if ended.is_some_and(|status| status.signal().is_some()) {
            thread::sleep(SIGNAL_DELAY);
        }
        if stop.is_cancelled() {
            return Err(stopped_error());
        }
        // The log is complete only when the pipe is at its end.
        self.end_process();
        let state = match ended {
            Some(status) => format!("ended ({status})"),
            None => format!("is not ready after {} s", START_LIMIT.as_secs()),
        };
        Err(invalid_error(format!("nbdkit {state}: {}", self.log.last_errors())))
    }

    /// Ends nbdkit. Does nothing if that was done already.
    fn end_process(&mut self) {
        // `run-with-parent` ends nbdkit when its standard input ends.
        drop(self.child.stdin.take());
        if !wait_until(END_LIMIT + KEEPER_LIMIT, || !matches!(self.child.try_wait(), Ok(None))) {
            tracing::warn!("nbdkit does not end, killing it");
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                tracing::warn!("cannot kill nbdkit: {}", errno_text(&error));
            }
        }
        // The wait for the rest of the log is limited, because a grandchild may hold the pipe open
        // forever.
        if let Some(reader) = self.reader.take()
            && wait_until(END_LIMIT, || reader.is_finished())
            && reader.join().is_err()
        {
            tracing::warn!("the thread that reads the log of nbdkit failed");
        }
    }
}

impl Drop for NbdkitProcess {
    fn drop(&mut self) {
        self.end_process();
        self.log.log_lines();
    }
}

/// Waits until `is_done` is true, or returns false after `limit`.
fn wait_until(limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_done() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(POLL);
    }
    true
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
        fs::write(folder.0.join(PASSWORD_FILE), password)?;
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
