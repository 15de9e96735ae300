//! Runs `cdi-importer pack`, which writes disks as an OCI artifact, as KubeVirt exports them.
//!
//! ```text
//!  source ─► datapath::disk_stream ─► encoders ─► layer: written and hashed ─┐
//!                                                                            ├─► layout
//!  config, manifest, index: made when all digests are known ─────────────────┘
//! ```

mod archive;
mod directory;
mod documents;
mod layer;
mod leftover;
mod name;
mod staged_file;

use std::fs;
use std::path::Path;
use std::time::Duration;

use datapath::options::WriteOptions;
use oci::own_architecture;
use program::limited::read_limited;
use program::progress::{BinaryBytes, ProgressMode};
use stream::error::TargetError;
use stream::storage::StorageLocation;

pub(super) use name::{DiskName, PackTarget};

use self::archive::ArchiveWriter;
use self::directory::DirectoryWriter;
use self::documents::{ArtifactDescription, LayoutDocuments, MachineConfig, PackedDisk};
use super::args::{PackArgs, SourceArgs};
use super::failure::{ImporterCommandError, of_source, usage_error};
use super::job;
use super::open::JobContext;
use super::target;

/// Largest definition of a virtual machine. Objects in a cluster have at most 1.5 MiB (etcd).
const MAX_CONFIG_BYTES: u64 = 2 << 20;

/// A layout that is being written. Until it is finished it does not look complete, and dropping it
/// removes what was written.
trait LayoutWriter {
    /// Appends bytes to the current blob, or begins the next one.
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), TargetError>;

    /// Ends the blob, whose digest is now known as `sha256:hex`.
    fn end_blob(&mut self, digest: &str) -> Result<(), TargetError>;

    /// Writes the other blobs and the index, which makes the layout complete.
    fn finish_layout(self: Box<Self>, documents: &LayoutDocuments) -> Result<(), TargetError>;
}

/// The result of a finished job.
struct PackReport {
    target: String,
    disks: Vec<PackedDisk>,
    manifest_digest: String,
}

pub(super) fn run(arguments: PackArgs) -> Result<(), ImporterCommandError> {
    job::run_job(
        ProgressMode::Auto,
        &arguments.job.output.clone(),
        move |context| pack_disks(&arguments, context),
        |display, report, time, _| display.show_summary(|| summary_line(report, time), &()),
    )
}

fn pack_disks(
    arguments: &PackArgs,
    context: &JobContext,
) -> Result<PackReport, ImporterCommandError> {
    let first = (&arguments.name, &arguments.source.source);
    let disks: Vec<(&DiskName, &String)> = std::iter::once(first)
        .chain(arguments.disks.iter().map(|(name, source)| (name, source)))
        .collect();
    for (index, (name, _)) in disks.iter().enumerate() {
        if disks.iter().skip(index + 1).any(|(other, _)| other == name) {
            let what = format!(
                "two disks are called {name}: give each its own name with --name and --disk"
            );
            return Err(usage_error(what));
        }
    }
    target::check_target(&arguments.target.path)?;
    let description = ArtifactDescription {
        config: arguments.config.as_deref().map(read_config).transpose()?,
        architecture: arguments
            .guest_architecture
            .clone()
            .unwrap_or_else(|| own_architecture().to_owned()),
        image_name: arguments.target.image_name.clone(),
    };
    let mut layout = open_layout(arguments, &description, &disks)?;
    let mut packed = Vec::new();
    for (name, source) in disks {
        packed.push(pack_disk(name, source, arguments, context, &mut *layout)?);
    }
    let documents = description.render(&packed);
    let manifest_digest = documents.manifest.digest.clone();
    layout.finish_layout(&documents).map_err(stream::Error::from)?;
    Ok(PackReport { target: arguments.target.to_string(), disks: packed, manifest_digest })
}

fn open_layout(
    arguments: &PackArgs,
    description: &ArtifactDescription,
    disks: &[(&DiskName, &String)],
) -> Result<Box<dyn LayoutWriter>, ImporterCommandError> {
    let PackTarget { is_archive, path, .. } = &arguments.target;
    if !is_archive {
        let layout = DirectoryWriter::open(path, arguments.force).map_err(stream::Error::from)?;
        return Ok(Box::new(layout));
    }
    // The documents come before the layers, so their length must be known now.
    let names = disks.iter().map(|(name, _)| PackedDisk::placeholder(name)).collect::<Vec<_>>();
    let documents = description.render(&names);
    let layout = ArchiveWriter::open(path, arguments.force, &documents);
    Ok(Box::new(layout.map_err(stream::Error::from)?))
}

fn pack_disk(
    name: &DiskName,
    source: &str,
    arguments: &PackArgs,
    context: &JobContext,
    layout: &mut dyn LayoutWriter,
) -> Result<PackedDisk, ImporterCommandError> {
    let source_arguments = SourceArgs { source: source.to_owned(), ..arguments.source.clone() };
    let reading = job::read_options(&arguments.job.transfer, &source_arguments.limits, context);
    let writing = WriteOptions {
        scratch: arguments.scratch.clone(),
        ..job::write_options(&arguments.job.transfer)
    };
    let source = context.open_image(&source_arguments, reading.checksum.is_some())?;
    tracing::info!(source = source.name(), length = source.total_bytes(), disk = %name, "opened the source");
    let source_name = source.name();
    let target = StorageLocation::from_path(&arguments.target.path);
    if let (Some(read), Some(written)) = (source.storage_location(), target)
        && read.shares_bytes_with(written)
    {
        return Err(target::source_error(&arguments.target.path));
    }
    let content = source_arguments.content.payload_kind();
    let written = layer::write_layer(source, content, reading, writing, layout, context);
    let layer = written.map_err(of_source(|| source_name))?;
    Ok(PackedDisk { name: name.clone(), layer })
}

/// Reads the definition of a virtual machine.
fn read_config(path: &Path) -> Result<MachineConfig, ImporterCommandError> {
    let failed =
        |why: String| usage_error(format!("cannot use --config {}: {why}", path.display()));
    let read = fs::File::open(path).and_then(|file| read_limited(file, MAX_CONFIG_BYTES));
    let bytes = read.map_err(|error| failed(stream::error::errno_text(&error)))?;
    MachineConfig::parse(bytes).map_err(failed)
}

/// Returns the line that reports success, such as `packed 2 disk(s) into oci:vm: 12.00 GiB virtual,
/// 1.30 GiB compressed in 5.1 s, manifest sha256:9f86…`.
fn summary_line(report: &PackReport, time: Duration) -> String {
    let total = |bytes: fn(&PackedDisk) -> u64| {
        BinaryBytes(report.disks.iter().map(bytes).fold(0, u64::saturating_add))
    };
    format!(
        "packed {} disk(s) into {}: {} virtual, {} compressed in {:.1} s, manifest {}",
        report.disks.len(),
        report.target,
        total(|disk| disk.layer.disk_bytes),
        total(|disk| disk.layer.bytes),
        time.as_secs_f64(),
        report.manifest_digest,
    )
}
