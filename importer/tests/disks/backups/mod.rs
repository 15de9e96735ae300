//! Backups as KubeVirt leaves them: qcow2 files that name no backing file, or do.

mod ranges;
mod restored;
mod wrong;

use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// A chain of backups, oldest first, and the disk that they are together.
struct Chain {
    files: Vec<PathBuf>,
    raw: PathBuf,
    virtual_size: u64,
}

impl Chain {
    /// A full backup with compressed clusters and `increments` others, of many kinds and sizes.
    /// None names its backing file.
    fn build(folder: &Path, increments: u64) -> Self {
        let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::RandomOrder) };
        let full = spec.build(folder, "full");
        let (mut files, mut raw, mut size) = (vec![full.qcow2], full.raw, full.virtual_size);
        for number in 1..=increments {
            let grown = number.is_multiple_of(4).then_some(size + 3 * 512);
            let kibibytes = [64, 16, 64, 4, 2048];
            let compressions = [Compression::Plain, Compression::Zlib, Compression::Zstd];
            let chosen = |count: usize| usize::try_from(number).or_fail("few increments") % count;
            let spec = Spec {
                cluster_size: kibibytes[chosen(5)] << 10,
                compression: compressions[chosen(3)],
                extended_l2: number % 5 == 2,
                virtual_size: size,
                resized_to: grown,
                seed: number,
                ..Spec::new(Content::Empty)
            };
            let delta = spec.build_delta_to(&raw, folder, &format!("backup{number}"));
            delta.rename_base("");
            files.push(delta.qcow2);
            (raw, size) = (delta.raw, delta.virtual_size);
        }
        Self { files, raw, virtual_size: size }
    }

    /// Gives each file the name of the one before it as its backing file.
    fn name_bases(&self) {
        for pair in self.files.windows(2) {
            let args = ["rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b"].map(AsRef::as_ref);
            let words = args.into_iter().chain([pair[0].as_os_str(), pair[1].as_os_str()]);
            testkit::tools::run("qemu-img", words);
        }
    }

    /// A list by `sha256sum`.
    fn write_manifest(&self, folder: &Path) -> PathBuf {
        let list = folder.join("chain.sha256");
        let text = testkit::tools::run("sha256sum", &self.files);
        std::fs::write(&list, text).or_fail("the manifest");
        list
    }
}

/// `cdi-importer restore` of `files` to `target`.
fn restore(words: &[&str], files: &[PathBuf], target: &Path) -> Finished {
    restoring(words, files, target).run()
}

fn restoring(words: &[&str], files: &[PathBuf], target: &Path) -> Program {
    Program::new(crate::BINARY).arg("restore").args(words).args(files).arg(target)
}
