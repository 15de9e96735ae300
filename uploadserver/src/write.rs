//! Writes received bytes to the disk or the directory. This is the blocking part of an upload.

use std::sync::Arc;

use codec::decode::Codec;
use datapath::disk::{self, VerifiedPrefix};
use datapath::options::WriteOptions;
use datapath::transfer;
use datapath::unpack;
use diskimage::Format;
use http::StatusCode;
use program::logging::POD_LINES;
use reporting::watch;
use stream::Error;
use stream::observe::Observer;
use stream::options::{ChosenFormat, CompressionLayers, PayloadKind, ReadOptions};
use volume::TargetVolume;

use crate::checksum::AnnouncedChecksum;
use crate::config::Config;
use crate::failure::{FailedStep, UploadError};
use crate::intake::ReceivedSource;
use crate::job::{BodyContent, UploadJob, UploadSuccess};
use crate::memory;

/// Writes the bytes of `received`. When it returns, either the result is complete and on disk, or
/// it was removed from both the disk and memory.
pub(crate) fn write_upload(
    config: &Config,
    job: &UploadJob,
    received: ReceivedSource,
) -> Result<UploadSuccess, UploadError> {
    volume::limits::of_next_transfer();
    let written = run_transfer(config, job, &received);
    // This is dropped first, because its chunks belong to the pool that is returned next.
    drop(received);
    memory::give_back();
    written
}

fn run_transfer(
    config: &Config,
    job: &UploadJob,
    received: &ReceivedSource,
) -> Result<UploadSuccess, UploadError> {
    let content = job.plan.content;
    let is_device = disk::is_block_device(&config.destination.disk);
    let written = match content {
        BodyContent::Archive => unpack_archive(config, job, received, CompressionLayers::Sniffed),
        BodyContent::FilesClone(wrapping) if !is_device => {
            unpack_archive(config, job, received, CompressionLayers::Only(wrapping))
        }
        BodyContent::Image => write_image(config, job, received),
        BodyContent::DeviceClone(wrapping) => {
            write_clone(config, job, received, wrapping, PayloadKind::RAW)
        }
        BodyContent::FilesClone(wrapping) => {
            write_clone(config, job, received, wrapping, PayloadKind::CloneOfFiles)
        }
    };
    match written {
        Ok(()) => Ok(UploadSuccess {
            content,
            preallocated: match content {
                BodyContent::Image => config.wanted.preallocate,
                BodyContent::Archive | BodyContent::DeviceClone(_) => false,
                // Upstream reports preallocation for every directory that it fills from a clone,
                // and controllers wait for that report.
                BodyContent::FilesClone(_) => !is_device,
            },
        }),
        // Errors after a stop are its consequences, so they are neither counted nor sent to the
        // client.
        Err(_) if job.stop.is_cancelled() => {
            Err(UploadError::new(StatusCode::SERVICE_UNAVAILABLE, "it was stopped on request"))
        }
        Err(error) => {
            job.progress.counted.record_failure(&error);
            let is_unpacked = content == BodyContent::Archive
                || (matches!(content, BodyContent::FilesClone(_)) && !is_device);
            let facts = job.progress.image_facts();
            Err(UploadError::from_error(
                &error,
                FailedStep {
                    phase: job.progress.counted.current_phase(),
                    is_raw: facts.is_some_and(|facts| facts.format == Format::Raw),
                    is_async: job.plan.is_async(),
                    dir: is_unpacked.then_some(&config.destination.dir),
                    is_clone: content.is_clone(),
                    is_pod: config.is_pod,
                },
            ))
        }
    }
}

fn write_image(config: &Config, job: &UploadJob, received: &ReceivedSource) -> Result<(), Error> {
    let (disk, size) = (&config.destination.disk, config.wanted.size);
    let kept = find_kept_prefix(config, job)?;
    let volume = match &kept {
        Some(kept) => TargetVolume::with_kept_prefix(disk, size, kept)?,
        None => TargetVolume::for_path(disk, size)?,
    };
    let target = volume.target_options(&config.wanted);
    let reading = read_options(config, job, CompressionLayers::Sniffed);
    let payload = match (&kept, job.plan.format) {
        // A client that sends prefix checksums has read the whole image and determined that it is
        // raw. The body begins in the middle of the disk, where any magic number may be.
        (Some(_), None) => ChosenFormat::Verbatim.payload_kind(),
        (_, chosen) => chosen.into(),
    };
    transfer_to(config, job, received, payload, &target, &reading, kept)
}

/// Finds the prefix of the disk that an earlier upload has left and that matches the client's
/// checksums. Publishes the end of this prefix, so that the client can be told.
fn find_kept_prefix(
    config: &Config,
    job: &UploadJob,
) -> Result<Option<Arc<VerifiedPrefix>>, Error> {
    let marks = job.plan.marks();
    if marks.is_empty() {
        return Ok(None);
    }
    let kept = VerifiedPrefix::find_prefix(&config.destination.disk, marks, &job.stop)?;
    job.resumable.kept.send_replace(Some(kept.as_ref().map_or(0, VerifiedPrefix::end_offset)));
    Ok(kept.map(Arc::new))
}

/// Writes a clone of a volume. The disk keeps the size of the clone, and the content is not
/// inspected.
fn write_clone(
    config: &Config,
    job: &UploadJob,
    received: &ReceivedSource,
    wrapping: Codec,
    payload: PayloadKind,
) -> Result<(), Error> {
    let volume = TargetVolume::for_path(&config.destination.disk, None)?;
    let target = volume.clone_options(&config.wanted);
    let reading = read_options(config, job, CompressionLayers::Only(wrapping));
    transfer_to(config, job, received, payload, &target, &reading, None)
}

fn transfer_to(
    config: &Config,
    job: &UploadJob,
    received: &ReceivedSource,
    payload: PayloadKind,
    target: &disk::DiskOptions,
    reading: &ReadOptions,
    kept: Option<Arc<VerifiedPrefix>>,
) -> Result<(), Error> {
    let writing = WriteOptions {
        workers: program::job::data_threads(),
        scratch: config.destination.scratch.clone().and_then(volume::scratch_volume),
        kept,
        ..WriteOptions::default()
    };
    let report = transfer::transfer_image(received, payload, target, reading, &writing)?;
    job.progress.disk_bytes.set(report.virtual_size).ok();
    watch::log_transfer(report.source_bytes, report.written_bytes, &target.path);
    tracing::info!(target: POD_LINES, "Wrote data to {}", target.path.display());
    Ok(())
}

fn unpack_archive(
    config: &Config,
    job: &UploadJob,
    received: &ReceivedSource,
    layers: CompressionLayers,
) -> Result<(), Error> {
    let dir = &config.destination.dir;
    let target = unpack::UnpackOptions {
        dir: dir.clone(),
        overwrite: true,
        available: disk::free_space(dir)?,
    };
    let report = unpack::unpack_archive(received, &target, &read_options(config, job, layers))?;
    watch::log_unpacked(report.source_bytes, report.entries, report.data_bytes, dir);
    tracing::info!("Wrote archive data");
    Ok(())
}

fn read_options(config: &Config, job: &UploadJob, layers: CompressionLayers) -> ReadOptions {
    let observer = Arc::clone(&job.progress) as Arc<dyn Observer>;
    ReadOptions {
        checksum: match &job.plan.promise {
            AnnouncedChecksum::Known(checksum) => Some(checksum.clone()),
            AnnouncedChecksum::None | AnnouncedChecksum::Later(_) => None,
        },
        layers,
        // A clone may contain anything, so it may also end within its first 512 bytes.
        full_header: config.is_pod && !job.plan.content.is_clone(),
        // The body is read to its end: the client sends all its bytes, and a body that breaks off
        // early is an error.
        read_all: true,
        ..config.limits.read_options(job.stop.clone(), observer)
    }
}
