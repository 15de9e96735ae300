//! Imports one image, and compares the disk with the one that qemu-img makes.

use std::path::{Path, PathBuf};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Image, Oracle};
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Program};

/// Bytes written besides the data: zeros in the first MiB, which is written last, and the log.
const WRITE_ALLOWANCE_BYTES: u64 = (1 << 20) + (64 << 10);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Route {
    /// A file, which can be read at any offset: its tables come first.
    Ranged,
    /// A pipe, which is read in the order of its bytes.
    OnePass,
}

pub(crate) const ROUTES: [Route; 2] = [Route::Ranged, Route::OnePass];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    File,
    /// A block device with this sector size, full of 0xFF.
    Device(u32),
}

/// An image whose disk is known.
pub(crate) struct Known {
    image: PathBuf,
    raw: PathBuf,
    oracle: Oracle,
}

impl Known {
    /// Has qemu-img convert the image to a file beside it.
    pub(crate) fn new(image: &Path, format: &str) -> Self {
        let mut raw = image.as_os_str().to_owned();
        raw.push(".raw");
        let raw = PathBuf::from(raw);
        Self { image: image.to_owned(), oracle: Oracle::ask(format, image, &raw), raw }
    }

    /// An image that testkit built, with its disk.
    pub(crate) fn built(image: &Image) -> Self {
        Self {
            image: image.qcow2.clone(),
            raw: image.raw.clone(),
            oracle: Oracle { virtual_size: image.virtual_size, data_bytes: image.data_bytes },
        }
    }

    /// Imports the image, and asserts that the disk is right, that little more than its data is
    /// written, and that memory is bounded.
    pub(crate) fn import(&self, route: Route, target: Target) {
        self.import_object(&self.image, route, target);
    }

    /// Like `import`, for an object that contains the image in another form.
    pub(crate) fn import_object(&self, object: &Path, route: Route, target: Target) {
        let finished = self.import_with(object, route, target, |program| program);
        let data = self.oracle.data_bytes;
        let (written, most) = (finished.written_bytes(), data + data / 100 + WRITE_ALLOWANCE_BYTES);
        assert!(
            written <= most,
            "{route:?} to {target:?}: {written} bytes written for {data} bytes of data, {most} allowed"
        );
    }

    /// Like `import_object`, for a program changed by `adjust`, which may write more.
    pub(crate) fn import_with(
        &self,
        object: &Path,
        route: Route,
        target: Target,
        adjust: impl FnOnce(Program) -> Program,
    ) -> Finished {
        let case = format!("{route:?} to {target:?}");
        let folder =
            tempfile::tempdir_in(folder_of(&self.image)).or_fail("a folder for the target");
        let device = match target {
            Target::File => None,
            Target::Device(sector_size) => {
                let bytes = self.oracle.virtual_size.next_multiple_of(1 << 20).max(1 << 20);
                Some(LoopDevice::new(folder.path(), bytes, sector_size))
            }
        };
        let path = device
            .as_ref()
            .map_or_else(|| folder.path().join("disk.img"), |device| device.path().to_owned());
        let finished = adjust(importer(object, route, &path)).run();
        finished.assert_success(&case);
        disk::assert_same(&path, &self.raw, self.oracle.virtual_size, &case);
        if device.is_none() {
            let length = path.metadata().or_fail(&case).len();
            assert_eq!(length, self.oracle.virtual_size, "{case}: length of the file");
            let files = folder.path().read_dir().or_fail(&case).count();
            assert_eq!(files, 1, "{case}: files beside the target");
        }
        finished
    }
}

/// Imports the image in `format` to a file by both routes, and compares it with qemu-img.
pub(crate) fn check(image: &Path, format: &str) {
    let known = Known::new(image, format);
    for route in ROUTES {
        known.import(route, Target::File);
    }
}

/// Asserts that both routes refuse the image with code 4 and this sentence, and leave no target.
pub(crate) fn refused(image: &Path, sentence: &str) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    for route in ROUTES {
        importer(image, route, &target).run().assert_failure(4, sentence);
        assert!(!target.exists(), "{route:?}: the target was left behind");
    }
}

pub(crate) fn importer(object: &Path, route: Route, target: &Path) -> Program {
    let program = Program::new(crate::BINARY).arg("import");
    match route {
        Route::Ranged => program.arg(object),
        Route::OnePass => program.arg("-").stdin_file(object),
    }
    .arg(target)
}

fn folder_of(file: &Path) -> &Path {
    file.parent().or_fail("the folder of a file")
}
