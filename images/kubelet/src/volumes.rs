//! The volumes of pods: claims, Secrets, ConfigMaps and empty folders.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, makedev, mknodat};
use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::secret_volume::SecretVolume;
use testkit::tools;

/// User ID and group ID of CDI's worker pods, and the `fsGroup` of their volumes (contract §5.2).
pub const QEMU: u32 = 107;

/// A bound PersistentVolumeClaim on a disk of its own. It is removed when dropped.
pub struct Claim {
    kind: Kind,
    // Fields are dropped in order: the device must be detached before its backing file's folder is
    // removed.
    device: LoopDevice,
    folder: TempDir,
}

enum Kind {
    /// An ext4 file system mounted at `folder/mount`. It contains the folder `lost+found`.
    Filesystem,
    /// The device node `folder/device`.
    Block,
}

impl Claim {
    /// A claim with volumeMode Filesystem on a disk of `bytes`.
    pub fn filesystem(bytes: u64) -> Self {
        let claim = Self::new(Kind::Filesystem, bytes);
        tools::run("mkfs.ext4", ["-q".as_ref(), claim.device.path()]);
        let mount = claim.path();
        fs::create_dir(&mount).or_fail(mount.display());
        tools::run("mount", [claim.device.path(), &mount]);
        own_by_group(&mount);
        claim
    }

    /// A claim with volumeMode Block of `bytes`, filled with 0xFF.
    pub fn block(bytes: u64) -> Self {
        let claim = Self::new(Kind::Block, bytes);
        // In clusters the container runtime gives the device node to the pod's user
        // (`device_ownership_from_security_context` of containerd and CRI-O). podman copies the
        // owner of the node on the host, so this node gets that owner.
        let node = claim.path();
        let number = claim.device.path().metadata().or_fail("a device").rdev();
        let number = makedev(rustix::fs::major(number), rustix::fs::minor(number));
        mknodat(rustix::fs::CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number)
            .or_fail(node.display());
        chown(&node, Some(QEMU), Some(QEMU)).or_fail(node.display());
        claim
    }

    fn new(kind: Kind, bytes: u64) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        Self { kind, device: LoopDevice::new(folder.path(), bytes, 512), folder }
    }

    /// True for volumeMode Block.
    pub fn is_block(&self) -> bool {
        matches!(self.kind, Kind::Block)
    }

    /// Size of the disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// The mounted folder, or the device.
    pub fn path(&self) -> PathBuf {
        let name = match self.kind {
            Kind::Filesystem => "mount",
            Kind::Block => "device",
        };
        self.folder.path().join(name)
    }

    /// The disk in the place where CDI keeps it: `disk.img`, or the device.
    pub fn disk(&self) -> PathBuf {
        match self.kind {
            Kind::Filesystem => self.path().join("disk.img"),
            Kind::Block => self.path(),
        }
    }

    /// Names of the files in the folder, sorted, without `lost+found`.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).or_fail("the folder of a claim");
        let names = entries
            .map(|entry| entry.or_fail("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name != "lost+found").collect();
        names.sort();
        names
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if matches!(self.kind, Kind::Filesystem) {
            tools::unmount(&self.path());
        }
    }
}

/// The objects in a namespace that pods mount, by name.
#[derive(Default)]
pub struct Objects<'a> {
    /// The PersistentVolumeClaims.
    pub claims: BTreeMap<&'a str, &'a Claim>,
    /// Secrets and ConfigMaps, with the names and contents of their files.
    pub files: BTreeMap<&'a str, Vec<(&'a str, String)>>,
}

impl Objects<'_> {
    /// The content of the file `key` in the Secret or ConfigMap `name`.
    pub fn file(&self, name: &str, key: &str) -> &str {
        let files = self.files.get(name).or_fail(format!("no object {name}"));
        let file = files.iter().find(|(known, _)| *known == key);
        &file.or_fail(format!("{name} has no {key}")).1
    }
}

/// A mounted volume. It exists as long as its pod.
pub(crate) enum Mounted {
    /// The folder or device of a claim.
    Claim(PathBuf),
    /// The files of a Secret or ConfigMap.
    Files(SecretVolume),
    /// An emptyDir.
    Empty(TempDir),
    /// The file system of an image in podman's storage.
    Image(String),
}

impl Mounted {
    /// Mounts the files of the object `name`.
    pub(crate) fn files(objects: &Objects<'_>, name: &str) -> Self {
        let files = objects.files.get(name).or_fail(format!("no object {name}"));
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        Self::Files(SecretVolume::new(&files))
    }

    /// Makes an empty folder.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().or_fail("an empty folder");
        own_by_group(folder.path());
        Self::Empty(folder)
    }

    /// The path of the volume on the node.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Claim(path) => path.clone(),
            // The folder is mounted as a whole, because the links in it are relative.
            Self::Files(volume) => volume.path(""),
            Self::Empty(folder) => folder.path().to_owned(),
            Self::Image(name) => panic!("the image {name} has no path"),
        }
    }

    /// The word of podman that mounts it at `place`.
    pub(crate) fn mount_option(&self, place: &str, is_read_only: bool) -> String {
        if let Self::Image(name) = self {
            return format!("--mount=type=image,source={name},destination={place}");
        }
        let options = if is_read_only { ":ro" } else { "" };
        format!("--volume={}:{place}{options}", self.path().display())
    }
}

/// Prepares a volume for a pod's `fsGroup` as kubelet does: the group owns the folder and
/// everything created in it.
fn own_by_group(folder: &Path) {
    chown(folder, None, Some(QEMU)).or_fail(folder.display());
    fs::set_permissions(folder, Permissions::from_mode(0o2775)).or_fail(folder.display());
}
