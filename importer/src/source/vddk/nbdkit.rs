//! nbdkit with the plugin of VMware's library, as a child that ends with us.
//!
//! The one program that the importer starts. Neither it nor the library is a part of our image: the library comes from the
//! user's side-car image, and both are trusted as far as that image is.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use datapath::error::{SourceError, SourceErrorKind, errno_text};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use super::log::{Log, VddkInfo};

/// How long nbdkit may take to listen: it loads the library, but connects only when somebody connects to it.
const START_LIMIT: Duration = Duration::from_secs(15);

/// How long nbdkit may take to close the disk before it is killed.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How often nbdkit is looked at while it starts or ends.
const POLL: Duration = Duration::from_millis(20);

/// Where programs and libraries lie.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The program `nbdkit`: a path, or a name to look up.
    pub nbdkit: PathBuf,
    /// VMware's library, in `lib64` below.
    pub library: PathBuf,
    /// A plugin to use instead of `vddk`, if there is such a file: a mock.
    pub test_plugin: PathBuf,
    /// More options for the library, if there is such a file.
    pub config_file: PathBuf,
}

impl Installation {
    /// Where the pod of CDI has them; `at` tells where its absolute paths are.
    pub fn of_pod(at: impl Fn(&str) -> PathBuf) -> Self {
        Self {
            nbdkit: "nbdkit".into(),
            library: at("/opt/vmware-vix-disklib-distrib"),
            test_plugin: at("/opt/testing/libvddk-test-plugin.so"),
            config_file: at("/vddk-args/vddk-config-file"),
        }
    }
}

/// What the plugin is told.
pub(super) struct Disk<'a> {
    pub(super) server: &'a str,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    pub(super) thumbprint: Option<&'a str>,
    pub(super) machine: &'a str,
    pub(super) snapshot: Option<&'a str>,
    pub(super) file: &'a str,
}

/// A running nbdkit.
pub(super) struct Nbdkit {
    child: Child,
    folder: Folder,
    log: Log,
    reader: Option<JoinHandle<()>>,
}

impl Installation {
    fn plugin(&self) -> PathBuf {
        if self.test_plugin.exists() {
            self.test_plugin.clone()
        } else {
            "vddk".into()
        }
    }

    /// That all is there, in the words of whoever can help.
    fn check(&self) -> Result<(), SourceError> {
        if !self.library.join("lib64").is_dir() {
            let message = format!(
                "the VDDK library is missing: there is no {}. It comes from a side-car image, which the ConfigMap \
                 v2v-vmware or initImageURL of the DataVolume names",
                self.library.join("lib64").display()
            );
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        let mut probe = Command::new(&self.nbdkit);
        probe.arg("--dump-plugin").arg(self.plugin());
        let output = probe
            .arg(pair("libdir=", &self.library))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let message = format!(
                "nbdkit cannot load its plugin vddk: {}",
                printable::text(text.lines().last().unwrap_or_default())
            );
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn not_started(&self, error: &io::Error) -> SourceError {
        let message = format!(
            "cannot start {}, with which VMware disks are read: {}",
            self.nbdkit.display(),
            errno_text(error)
        );
        SourceError::new(SourceErrorKind::Invalid, message)
    }

    fn arguments(&self, disk: &Disk<'_>, folder: &Folder) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["--foreground", "--readonly", "--verbose"].map(Into::into).into();
        arguments.extend(["--filter=retry", "--filter=cacheextents"].map(Into::into));
        // Per request, these would be more than all the rest.
        arguments.extend(["-D", "nbdkit.backend.datapath=0"].map(Into::into));
        arguments.extend(["-D", "vddk.datapath=0", "-D", "vddk.stats=1"].map(Into::into));
        arguments.extend(["--unix".into(), folder.socket().into_os_string()]);
        arguments.extend(["--pidfile".into(), folder.pid().into_os_string()]);
        arguments.push(self.plugin().into_os_string());
        arguments.push(pair("libdir=", &self.library));
        arguments.push(format!("server={}", disk.server).into());
        arguments.push(format!("user={}", disk.user).into());
        arguments.push(pair("password=+", &folder.password()));
        if let Some(thumbprint) = disk.thumbprint {
            arguments.push(format!("thumbprint={thumbprint}").into());
        }
        arguments.push(format!("vm=moref={}", disk.machine).into());
        if let Some(snapshot) = disk.snapshot {
            arguments.push(format!("snapshot={snapshot}").into());
            arguments.push("transports=file:nbdssl:nbd".into());
        }
        if self.config_file.exists() {
            arguments.push(pair("config=", &self.config_file));
        }
        arguments.push(format!("file={}", disk.file).into());
        arguments
    }
}

fn pair(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text
}

impl Nbdkit {
    /// Starts nbdkit and waits until it listens.
    pub(super) fn start(
        installation: &Installation,
        disk: &Disk<'_>,
        stop: &CancellationToken,
    ) -> Result<Self, SourceError> {
        installation.check()?;
        let folder = Folder::create(disk.password).map_err(|error| {
            let message = format!("cannot prepare a folder for nbdkit: {}", errno_text(&error));
            SourceError::new(SourceErrorKind::Io, message)
        })?;
        let mut child = Command::new(&installation.nbdkit)
            .args(installation.arguments(disk, &folder))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| installation.not_started(&error))?;
        let log = Log::default();
        let reader = child.stderr.take().map(|pipe| {
            let log = log.clone();
            thread::spawn(move || log.follow(pipe))
        });
        let mut nbdkit = Self {
            child,
            folder,
            log,
            reader,
        };
        nbdkit.wait_until_ready(stop)?;
        nbdkit.folder.forget_password();
        Ok(nbdkit)
    }

    fn wait_until_ready(&mut self, stop: &CancellationToken) -> Result<(), SourceError> {
        let start = Instant::now();
        // Written when it listens. To try the socket would be a connection that it complains about.
        while !self.folder.pid().exists() {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || start.elapsed() > START_LIMIT || stop.is_cancelled() {
                let how = match ended {
                    Some(status) => format!("ended ({status})"),
                    None => format!("does not listen after {} s", start.elapsed().as_secs()),
                };
                // Until the pipe is at its end, not all was said.
                self.end();
                let message = format!("nbdkit {how}: {}", self.log.errors());
                return Err(SourceError::new(SourceErrorKind::Connect, message));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.socket()
    }

    /// What the library has said about itself so far.
    /// What is being said, also when nbdkit has ended.
    pub(super) fn log(&self) -> Log {
        self.log.clone()
    }

    pub(super) fn info(&self) -> VddkInfo {
        self.log.info()
    }

    /// Ends it. The last errors that it reported tell why something failed.
    pub(super) fn end_with_reason(mut self) -> String {
        self.end();
        self.log.errors()
    }

    /// Does nothing when it has ended already.
    fn end(&mut self) {
        if self.reader.is_none() {
            return;
        }
        if let Err(errno) = kill_process(Pid::from_child(&self.child), Signal::TERM) {
            tracing::debug!("nbdkit has ended already: {errno}");
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > END_LIMIT {
                tracing::warn!("nbdkit does not end, killing it");
                if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                    tracing::warn!("cannot kill nbdkit: {}", errno_text(&error));
                }
                break;
            }
            thread::sleep(POLL);
        }
        if self.reader.take().is_some_and(|reader| reader.join().is_err()) {
            tracing::warn!("the thread that reads the log of nbdkit failed");
        }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.end();
        self.log.print();
    }
}

/// A folder that only we can look into, with the socket and, for a moment, the password.
struct Folder(PathBuf);

impl Folder {
    fn create(password: &str) -> io::Result<Self> {
        // Fails if there is anything of that name already.
        let path = std::env::temp_dir().join(format!("cdi-vddk-{:016x}", fastrand::u64(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self(path);
        let mut file: File = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.password())?;
        file.write_all(password.as_bytes())?;
        Ok(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("nbd.sock")
    }

    fn pid(&self) -> PathBuf {
        self.0.join("nbd.pid")
    }

    fn password(&self) -> PathBuf {
        self.0.join("password")
    }

    fn forget_password(&self) {
        if let Err(error) = fs::remove_file(self.password()) {
            tracing::warn!("cannot remove the password for nbdkit: {}", errno_text(&error));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!("cannot remove {}: {}", self.0.display(), errno_text(&error));
        }
    }
}
