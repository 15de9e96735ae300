//! The files and TCP ports that a process may open, enforced by Landlock.
//!
//! Every program may open what its libraries need: the resolver's files, the system's certificate
//! authorities, and facts about this process and its cgroup. A program adds its source, its target,
//! its credentials and its ports.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, PathFdError, RestrictSelfAttr, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use program::command_line::CommandError;
use program::env::NamedStrings;
use program::exit::ExitReason;
use rustix::fs::{FileType, fstat};

use crate::AppliedPart;
use crate::calls::CallSet;

/// The newest version whose rights are requested; the tests run with it. An older kernel enforces
/// those that it knows.
const NEWEST: ABI = ABI::V7;

/// The reason why the files of a process that starts another program are not restricted.
pub(crate) const STARTS_PROGRAM: &str = "nbdkit and VMware's library need programs and files";

/// Files and directories that every program may read; those that do not exist are left out.
const SYSTEM: [&str; 38] = [
    // Resolver (resolv.conf(5), gai.conf(5)); systemd and NetworkManager replace resolv.conf while
    // programs run.
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/run/systemd/resolve",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf/resolv.conf",
    // Certificate authorities: the places in which rustls-native-certs looks (openssl-probe).
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cacert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/etc/certs",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/local/share/certs",
    "/usr/local/etc/ssl",
    "/usr/lib/ssl/certs",
    "/usr/lib/ssl/cert.pem",
    "/usr/share/pki",
    "/usr/share/ssl/certs",
    "/var/ssl/certs",
    "/var/lib/ca-certificates",
    "/opt/etc/ssl/certs",
    // This process (descriptors, memory, cgroup), its limits, and the topology of block devices.
    "/proc/self",
    "/proc/uptime",
    "/sys/fs/cgroup",
    "/sys/dev/block",
    "/sys/devices",
    "/dev/urandom",
    // How the kernel accounts for memory. glibc's malloc reads it when it shrinks the heap of a
    // thread (check_may_shrink_heap).
    "/proc/sys/vm/overcommit_memory",
];

/// Variables that replace the system's certificate authorities.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The connections that a process may make over TCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TcpConnections {
    /// None: the source is on this machine.
    #[default]
    None,
    /// Only to this port, and to name servers.
    To(u16),
    /// To every port: redirects and token services may lead to any.
    Any,
}

/// The port of name servers (RFC 1035, §4.2).
const DNS: u16 = 53;

/// A target whose rule depends on what it is when the rules are enforced.
#[derive(Debug, Clone)]
struct TargetRule {
    path: PathBuf,
    /// True if a file is replaced and only a device is written in place, as for disks.
    is_disk: bool,
    /// The directories in which anything else is created, and the rights there.
    folders: Vec<(PathBuf, BitFlags<AccessFs>)>,
}

impl TargetRule {
    fn new(path: &Path, is_disk: bool) -> Self {
        let folders = vec![(parent_of(path), create_rights())];
        Self { path: path.to_owned(), is_disk, folders }
    }
}

/// The files and ports that a process may still open.
#[derive(Debug, Clone, Default)]
pub struct SandboxRules {
    read: BTreeSet<PathBuf>,
    targets: Vec<TargetRule>,
    /// Directories in which files are created and removed.
    create: BTreeSet<PathBuf>,
    /// Directories whose whole content is written: the targets of archives.
    trees: BTreeSet<PathBuf>,
    listen: BTreeSet<u16>,
    connections: TcpConnections,
    pub(crate) calls: CallSet,
    pub(crate) deferred: Option<&'static str>,
}

impl SandboxRules {
    /// Returns rules for what every program needs. `env` may name other certificate authorities.
    pub fn new(env: &dyn NamedStrings) -> Self {
        let mut rules = Self::default();
        rules.read.extend(SYSTEM.map(PathBuf::from));
        let given = CERTIFICATE_VARIABLES.iter().filter_map(|name| env.get(name));
        // Both may contain several paths, like PATH.
        let given: Vec<String> = given.collect();
        rules.read.extend(given.iter().flat_map(|paths| paths.split(':')).map(PathBuf::from));
        rules
    }

    /// Allows reading a file or device, or everything in a directory.
    pub fn read(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.read.insert(path.into());
        self
    }

    /// Allows writing a disk to `path`: the device there, or a file that is created in its
    /// directory. Landlock knows files only by directories before they exist.
    pub fn write_disk(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.targets.push(TargetRule::new(path.as_ref(), true));
        self
    }

    /// Allows writing a disk to `path` and, unless a device is there, an archive to `folder`.
    pub fn write_disk_or_tree(&mut self, path: &Path, folder: &Path) -> &mut Self {
        let mut target = TargetRule::new(path, true);
        target.folders.push((folder.to_owned(), tree_rights()));
        self.targets.push(target);
        self.calls.trees = true;
        self
    }

    /// Allows writing the file `path`, and creating it if it does not exist.
    pub fn write_file(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.targets.push(TargetRule::new(path.as_ref(), false));
        self
    }

    /// Allows creating and removing files in `folder` and below it.
    pub fn create_in(&mut self, folder: impl Into<PathBuf>) -> &mut Self {
        self.create.insert(folder.into());
        self
    }

    /// Allows everything that an archive may contain in `folder` and below it.
    pub fn write_tree(&mut self, folder: impl Into<PathBuf>) -> &mut Self {
        self.trees.insert(folder.into());
        self.calls.trees = true;
        self
    }

    /// Allows listening on a TCP port; 0 is a port that the system chooses.
    pub fn listen(&mut self, port: u16) -> &mut Self {
        self.listen.insert(port);
        self.calls.network = true;
        self.calls.listen = true;
        self
    }

    /// Allows these connections, and looking up names.
    pub fn connect(&mut self, connections: TcpConnections) -> &mut Self {
        self.calls.network |= connections != TcpConnections::None;
        self.connections = self.connections.max(connections);
        self
    }

    /// Allows connecting to Unix sockets, which Landlock does not limit to a path.
    pub fn connect_unix(&mut self) -> &mut Self {
        self.calls.unix = true;
        self
    }

    /// Allows starting one program before [`crate::enter_deferred`].
    pub fn defer(&mut self) -> &mut Self {
        self.deferred = Some(STARTS_PROGRAM);
        self
    }

    /// Opens what exists. Fails if a target cannot be opened: without a rule it would stay closed
    /// even if a later attempt had the right, and an upload server would refuse every upload.
    fn open_paths(&self) -> Result<Vec<OpenedPath>, CommandError> {
        let mut opened = Vec::new();
        for path in &self.read {
            // The reader of a file that cannot be opened reports the error.
            opened.extend(OpenedPath::open(path, read_rights()).ok().flatten());
        }
        let open = |path: &Path, rights| {
            OpenedPath::open(path, rights).map_err(|cause| {
                let path = path.display();
                let sentence = format_args!("cannot open {path}, which must be writable: {cause}");
                CommandError::new(ExitReason::Target, sentence)
            })
        };
        for target in &self.targets {
            let found = open(&target.path, create_rights() | AccessFs::IoctlDev)?;
            let in_place =
                |found: &OpenedPath| !target.is_disk || found.kind == FileType::BlockDevice;
            if let Some(found) = found.filter(in_place) {
                opened.push(found);
                continue;
            }
            for (folder, rights) in &target.folders {
                opened.extend(open(folder, *rights)?);
            }
        }
        for (folders, rights) in [(&self.create, create_rights()), (&self.trees, tree_rights())] {
            for folder in folders {
                opened.extend(open(folder, rights)?);
            }
        }
        Ok(opened)
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    }
}

/// A file or directory that a rule is about.
#[derive(Debug)]
struct OpenedPath {
    descriptor: PathFd,
    kind: FileType,
    rights: BitFlags<AccessFs>,
}

impl OpenedPath {
    /// Opens `path`, to which the process keeps `rights`. `None` if nothing is there: then it
    /// cannot be opened later either, unless it is in a directory that another rule allows.
    fn open(path: &Path, rights: BitFlags<AccessFs>) -> io::Result<Option<Self>> {
        let descriptor = match PathFd::new(path) {
            Ok(descriptor) => descriptor,
            Err(PathFdError::OpenCall { source, .. }) => match source.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => return Ok(None),
                _ => return Err(source),
            },
            // No other kind exists.
            Err(error) => return Err(io::Error::other(error)),
        };
        // The kernel refuses a rule that gives a file the rights of a directory.
        let kind = FileType::from_raw_mode(fstat(&descriptor)?.st_mode);
        let rights = if kind == FileType::Directory { rights } else { rights & file_rights() };
        Ok(Some(Self { descriptor, kind, rights }))
    }
}

/// Restricts this thread, and those that it starts, to `rules`, as far as the kernel can. Fails if
/// a target cannot be opened.
pub(crate) fn restrict_files(rules: SandboxRules) -> Result<AppliedPart, CommandError> {
    let paths = rules.open_paths()?;
    Ok(match try_restrict(paths, rules) {
        Ok(status) => describe_status(&status),
        Err(error) => Err(error.to_string()),
    })
}

fn describe_status(status: &RestrictionStatus) -> AppliedPart {
    let version = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        LandlockStatus::NotEnabled => return Err("Landlock is disabled on this machine".to_owned()),
        LandlockStatus::NotImplemented => {
            return Err("the kernel or the container's seccomp profile lacks Landlock".to_owned());
        }
    };
    let number = version as i32;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(format!("Landlock ABI {number} cannot rename files between directories"));
    }
    let what = if version < ABI::V4 { "files" } else { "files and TCP ports" };
    Ok(format!("{what} by Landlock ABI {number}"))
}

fn try_restrict(
    paths: Vec<OpenedPath>,
    rules: SandboxRules,
) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    if paths.iter().any(|path| path.rights.contains(AccessFs::Refer)) {
        // Version 1 denies all renames between directories, which would make every archive fail.
        ruleset = ruleset
            .set_compatibility(CompatLevel::SoftRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort);
    }
    ruleset = ruleset.handle_access(AccessNet::BindTcp)?.scope(Scope::from_all(NEWEST))?;
    if rules.connections != TcpConnections::Any {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut created = ruleset.create()?;
    for path in paths {
        // A pipe or another file that only the kernel has cannot have a rule, and needs none:
        // Landlock does not restrict it. All other rules must hold. The clone is another
        // descriptor of the same rules.
        let rule = PathBeneath::new(path.descriptor, path.rights);
        let added = created
            .try_clone()
            .map_err(|error| error.to_string())
            .and_then(|created| created.add_rule(rule).map_err(|error| error.to_string()));
        if let Err(reason) = added {
            tracing::debug!("sandbox: no rule for a file: {reason}");
        }
    }
    for port in rules.listen {
        created = created.add_rule(NetPort::new(port, AccessNet::BindTcp))?;
    }
    if let TcpConnections::To(port) = rules.connections {
        for port in [port, DNS] {
            created = created.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
        }
    }
    created.all_threads(true)?.restrict_self()
}

/// Rights of directories and files that are read. Devices need requests for their size.
fn read_rights() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir | IoctlDev})
}

/// Rights of directories in which files are created.
fn create_rights() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile})
}

/// Rights of directories that receive an archive.
fn tree_rights() -> BitFlags<AccessFs> {
    create_rights() | make_bitflags!(AccessFs::{MakeDir | MakeSym | MakeFifo | RemoveDir | Refer})
}

/// Rights that a file can have; the others are about directories.
fn file_rights() -> BitFlags<AccessFs> {
    AccessFs::from_file(NEWEST)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// Opens what `rules` allow, and returns each path with its rights.
    fn opened(rules: &SandboxRules) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
        let opened = rules.open_paths().unwrap();
        let place = |path: &OpenedPath| {
            let number = path.descriptor.as_fd().as_raw_fd();
            std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap()
        };
        opened.iter().map(|path| (place(path), path.rights)).collect()
    }

    #[test]
    fn a_new_disk_needs_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let disk = folder.join("disk.img");
        let folder_at = |rights| (folder.clone(), rights);
        let mut rules = SandboxRules::default();
        rules.write_disk(&disk).write_file(&disk).write_disk_or_tree(&disk, &folder);
        // Until the file exists, it is created in its directory.
        let created = [create_rights(), create_rights(), create_rights(), tree_rights()];
        assert_eq!(opened(&rules), created.map(folder_at));
        // A disk in a file is replaced, so the directory is needed even if the file exists.
        std::fs::write(&disk, "old").unwrap();
        let mut expected = created.map(folder_at);
        expected[1] = (disk, (create_rights() | AccessFs::IoctlDev) & file_rights());
        assert_eq!(opened(&rules), expected);
        // A directory that does not exist has no rule.
        let mut rules = SandboxRules::default();
        rules.write_disk(folder.join("missing/disk.img")).write_disk("new.img");
        assert_eq!(opened(&rules), [(std::env::current_dir().unwrap(), create_rights())]);
    }

    #[test]
    fn certificates_may_be_elsewhere() {
        let env = std::collections::HashMap::from([(
            "SSL_CERT_DIR".to_owned(),
            "/a/certs:/b/certs".to_owned(),
        )]);
        let rules = SandboxRules::new(&env);
        assert!(["/a/certs", "/b/certs"].iter().all(|path| rules.read.contains(Path::new(path))));
    }
}
