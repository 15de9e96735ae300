//! The command `kubectl cdi download`: copies the disk of a volume to this machine.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use diskimage::qcow2::Qcow2Compression;
use program::command_line::values::DurationValue;
use program::progress::{BinaryBytes, ProgressArgs, ProgressMode};
use program::start;

use super::stopped_error;
use super::view::{VolumeJobEvent, VolumeJobView};
use crate::cluster::{Cluster, ClusterOptions, DownloadSource, is_our_image, printable_line};
use crate::error::{PluginError, PluginErrorKind};
use crate::receive::{DiskFormat, DownloadTask, LocalDisk, ReaderSlot};

pub(super) const DOWNLOAD_EXAMPLES: &str = "\
Examples:
  # Download the disk of a claim; the same command resumes it
  kubectl cdi download pvc/disk1 disk1.raw

  # Download the only disk of a virtual machine, compressed
  kubectl cdi download vm/fedora fedora.raw.zst

  # Download a disk as a qcow2 image
  kubectl cdi download dv/fedora fedora.qcow2

  # Write the disk to a pipe
  kubectl cdi download dv/fedora - | ssh host 'cat > fedora.raw'";

/// The image of the pod that reads a volume, if the builder of this program names one.
const CLONER_IMAGE: Option<&str> = option_env!("CDI_CLONER_IMAGE");

#[derive(Debug, Args)]
pub(super) struct DownloadArgs {
    /// The disk: `pvc/NAME`, `dv/NAME`, or `vm/NAME` for the only disk of a virtual machine
    #[arg(value_name = "SOURCE", value_hint = ValueHint::Other)]
    source: DownloadSource,

    /// The new file; `-` writes to stdout
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Format of the file [default: qcow2 or raw.zst if FILE ends in .qcow2 or .zst, otherwise raw]
    #[arg(long, value_enum, help_heading = "Download")]
    format: Option<DownloadFormat>,

    /// Compress the clusters of a qcow2 image [default: none]
    #[arg(long, value_name = "CODEC", value_parser = compression_parser(), help_heading = "Download")]
    compression: Option<Qcow2Compression>,

    /// Read a disk that is in use; the copy may be inconsistent
    #[arg(long, help_heading = "Download")]
    force: bool,

    /// Image with cdi-cloner for the pod that reads the volume [default: the one that CDI uses, if
    /// it is from cdi-workers]
    #[arg(long, value_name = "IMAGE", help_heading = "Download")]
    image: Option<String>,

    /// Retry an interrupted download for this long
    #[arg(long, value_name = "TIME", default_value = "1h", help_heading = "Download")]
    timeout: DurationValue,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,

    #[command(flatten)]
    shown: ProgressArgs,
}

/// Values of `download --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DownloadFormat {
    /// The bytes of the disk, with holes instead of zeros
    Raw,
    /// The bytes of the disk, compressed with zstd
    #[value(name = "raw.zst")]
    RawZstd,
    /// A qcow2 image
    Qcow2,
}

fn compression_parser() -> impl TypedValueParser<Value = Qcow2Compression> {
    let names = Qcow2Compression::ALL.map(Qcow2Compression::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Qcow2Compression>())
}

pub(super) fn run_download(arguments: &DownloadArgs) -> Result<(), PluginError> {
    let view = VolumeJobView::of_download();
    let job = || {
        download_disk(arguments, &view)?;
        // On stdout, the summary would become a part of the disk.
        Ok((arguments.file != Path::new("-")).then_some(()))
    };
    view.run_shown(&arguments.shown, job, |(), seconds, warnings| {
        let (disk_bytes, received) = (view.total.load(Ordering::Relaxed), view.watch.handed_over());
        let (disk, stream) = (BinaryBytes(disk_bytes), BinaryBytes(received));
        let (source, file) = (arguments.source.to_string(), arguments.file.display());
        let summary =
            format!("{disk} downloaded from {source} into {file} as {stream} in {seconds:.1} s");
        let event = VolumeJobEvent::Downloaded {
            source,
            disk_bytes,
            received_bytes: received,
            seconds,
            retries: view.watch.retries(),
            warnings,
        };
        (summary, event)
    })
}

/// Runs the download, and removes its pod however the download ends.
fn download_disk(arguments: &DownloadArgs, view: &VolumeJobView) -> Result<(), PluginError> {
    let format = disk_format(&arguments.file, arguments.format, arguments.compression)?;
    if arguments.file == Path::new("-") && arguments.shown.progress == ProgressMode::Json {
        let words = "--progress json writes to stdout, like the disk: choose a file, or plain";
        return Err(PluginError::usage(words));
    }
    start::on_runtime(async |shutdown| {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let image = reader_image(&cluster, arguments.image.as_deref()).await?;
        let disk = LocalDisk::open(&arguments.file, format)?;
        let (is_file, identity) = (disk.is_file(), disk.identity());
        let reader = ReaderSlot::default();
        let task = DownloadTask {
            cluster: &cluster,
            source: &arguments.source,
            download: &identity,
            image: &image,
            is_forced: arguments.force,
            stall_limit: arguments.timeout.0,
            watch: &view.watch,
            total: &view.total,
            reader: &reader,
        };
        let result = tokio::select! {
            result = task.run(disk) => result,
            () = shutdown.cancel_token().cancelled() => {
                let advice = is_file.then(|| "the same command resumes the download".to_owned());
                Err(stopped_error(&shutdown, advice))
            }
        };
        reader.remove_pod(&cluster).await;
        result
    })
}

/// Returns the image of the pod that reads the volume, by default the one of CDI's cloner.
async fn reader_image(cluster: &Cluster, given: Option<&str>) -> Result<String, PluginError> {
    if let Some(image) = given.or(CLONER_IMAGE) {
        return Ok(image.to_owned());
    }
    let reason = match cluster.worker_image("CLONER_IMAGE").await {
        Ok(Some(image)) if is_our_image(&image, "cdi-cloner") => return Ok(image),
        Ok(Some(image)) => {
            format!("CDI's cloner image is not from cdi-workers: {}", printable_line(&image))
        }
        Ok(None) => {
            "deployment/cdi-deployment with a CLONER_IMAGE not found in namespace cdi".to_owned()
        }
        Err(error) if error.kind == PluginErrorKind::Denied => error.to_string(),
        Err(error) => return Err(error),
    };
    let what = format!(
        "cannot choose an image for the reader pod: {reason}; give --image with an image of cdi-cloner"
    );
    Err(PluginError::usage(what))
}

/// Returns the format of the file, by default according to its name.
fn disk_format(
    file: &Path,
    given: Option<DownloadFormat>,
    compression: Option<Qcow2Compression>,
) -> Result<DiskFormat, PluginError> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let format = match (given, extension.to_ascii_lowercase().as_str()) {
        (Some(format), _) => format,
        (None, "zst" | "zstd") => DownloadFormat::RawZstd,
        (None, "qcow2") => DownloadFormat::Qcow2,
        (None, "vmdk" | "vhdx" | "vhd" | "vdi" | "gz" | "xz") => {
            return Err(PluginError::usage(format!(
                "the format of {} is not supported: choose a name with .raw, .raw.zst or .qcow2, or give --format",
                file.display()
            )));
        }
        (None, _) => DownloadFormat::Raw,
    };
    match format {
        DownloadFormat::Qcow2 if file == Path::new("-") => Err(PluginError::usage(
            "a pipe cannot be a qcow2 image: choose a file, or another --format",
        )),
        DownloadFormat::Qcow2 => Ok(DiskFormat::Qcow2(compression.unwrap_or_default())),
        _ if compression.is_some() => Err(PluginError::usage(
            "--compression is for qcow2: choose a name with .qcow2, or give --format qcow2",
        )),
        DownloadFormat::Raw => Ok(DiskFormat::Raw),
        DownloadFormat::RawZstd => Ok(DiskFormat::RawZstd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_tells_its_format() {
        let qcow2 = DiskFormat::Qcow2(Qcow2Compression::None);
        for (name, given, format) in [
            ("a", None, DiskFormat::Raw),
            ("a.img", None, DiskFormat::Raw),
            ("-", None, DiskFormat::Raw),
            ("a.raw.zst", None, DiskFormat::RawZstd),
            ("a.zst", Some(DownloadFormat::Raw), DiskFormat::Raw),
            ("-", Some(DownloadFormat::RawZstd), DiskFormat::RawZstd),
            ("a.QCOW2", None, qcow2),
            ("a", Some(DownloadFormat::Qcow2), qcow2),
        ] {
            assert_eq!(disk_format(Path::new(name), given, None).unwrap(), format, "{name}");
        }
        let zstd = Some(Qcow2Compression::Zstd);
        let format = disk_format(Path::new("a.qcow2"), None, zstd).unwrap();
        assert_eq!(format, DiskFormat::Qcow2(Qcow2Compression::Zstd));
        for (name, given, compression, sentence) in [
            ("a.vmdk", None, None, "a.vmdk is not supported"),
            ("a.raw", None, zstd, "--compression is for qcow2"),
            ("-", Some(DownloadFormat::Qcow2), None, "a pipe cannot be a qcow2 image"),
        ] {
            let said = disk_format(Path::new(name), given, compression).unwrap_err().to_string();
            assert!(said.contains(sentence), "{said}");
        }
    }
}
