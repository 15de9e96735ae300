//! A mounted Secret or ConfigMap, updated as kubelet does it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::fail::OrFail;

/// A folder with files such as `tls.crt`. Each is a link to `..data/tls.crt`, and `..data` is a
/// link to the folder with the current files. Replacing that link changes all files at once.
pub struct SecretVolume {
    folder: TempDir,
    version: usize,
}

impl SecretVolume {
    /// A volume with these files.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let mut volume = Self { folder, version: 0 };
        volume.replace(files);
        for (name, _) in files {
            symlink(format!("..data/{name}"), volume.path(name)).or_fail(name);
        }
        volume
    }

    /// The path of the file with this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the content of all files at once and removes the previous content.
    pub fn replace(&mut self, files: &[(&str, &str)]) {
        let before = self.path(&format!("..{}", self.version));
        self.version += 1;
        let now = format!("..{}", self.version);
        std::fs::create_dir(self.path(&now)).or_fail(&now);
        for (name, content) in files {
            std::fs::write(self.path(&now).join(name), content).or_fail(name);
        }
        symlink(&now, self.path("..data_tmp")).or_fail("..data_tmp");
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).or_fail("..data");
        if before.exists() {
            std::fs::remove_dir_all(&before).or_fail(before.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_together() {
        let mut volume = SecretVolume::new(&[("tls.crt", "certificate 1"), ("tls.key", "key 1")]);
        volume.replace(&[("tls.crt", "certificate 2"), ("tls.key", "key 2")]);
        let read = |name| std::fs::read_to_string(volume.path(name)).unwrap();
        assert_eq!(
            (read("tls.crt").as_str(), read("tls.key").as_str()),
            ("certificate 2", "key 2")
        );
        assert_eq!(std::fs::read_dir(volume.folder.path()).unwrap().count(), 4);
    }
}
