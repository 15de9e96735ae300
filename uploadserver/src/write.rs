//! Writes what was received to the disk or the directory: the blocking middle of an upload.

use std::sync::Arc;

use datapath::Error;
use datapath::archive;
use datapath::observe::Observer;
use datapath::target;
use datapath::transfer::{self, Envelope};
use diskimage::Format;
use http::StatusCode;
use volume::Volume;

use crate::checksum::Promise;
use crate::config::Config;
use crate::failure::{Doing, UploadFailed};
use crate::intake::Received;
use crate::job::{Content, Job, Success, Wrapping};

/// Writes what comes out of `received`. Returns when it is complete and on the disk, or nothing of it is left.
pub(crate) fn write(config: &Config, job: &Job, received: &Received) -> Result<Success, UploadFailed> {
    let content = job.plan.content;
    let is_device = target::is_block_device(&config.destination.disk);
    let written = match content {
        Content::Archive => unpack(config, job, received, Envelope::Sniffed),
        Content::FilesClone(wrapping) if !is_device => unpack(config, job, received, around_bytes(wrapping)),
        Content::Image => image(config, job, received),
        Content::DeviceClone(wrapping) => clone(config, job, received, around_bytes(wrapping)),
        Content::FilesClone(wrapping) => clone(config, job, received, around_tar(wrapping)),
    };
    match written {
        Ok(()) => Ok(Success {
            content,
            preallocated: match content {
                Content::Image => config.wanted.preallocate,
                Content::Archive | Content::DeviceClone(_) => false,
                // Upstream says so of every directory that it fills from a clone, and controllers wait for it.
                Content::FilesClone(_) => !is_device,
            },
        }),
        Err(_) if job.stop.is_cancelled() => Err(UploadFailed::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "it was stopped on request",
        )),
        Err(error) => {
            let is_unpacked =
                content == Content::Archive || (matches!(content, Content::FilesClone(_)) && !is_device);
            let facts = job.progress.facts();
            Err(UploadFailed::of(
                &error,
                Doing {
                    phase: job.progress.current_phase(),
                    is_raw: facts.is_some_and(|facts| facts.format == Format::Raw),
                    is_async: job.plan.is_async,
                    dir: is_unpacked.then_some(&config.destination.dir),
                    is_clone: content.is_clone(),
                },
            ))
        }
    }
}

fn image(config: &Config, job: &Job, received: &Received) -> Result<(), Error> {
    let volume = Volume::of(&config.destination.disk, config.wanted.size)?;
    let target = volume.target_options(&config.wanted);
    let options = options(config, job, Envelope::Sniffed);
    transfer_to(received, &target, &options)
}

/// A clone has the size that it has, and nothing of it is looked at.
fn clone(config: &Config, job: &Job, received: &Received, envelope: Envelope) -> Result<(), Error> {
    let volume = Volume::of(&config.destination.disk, None)?;
    let target = volume.clone_options(&config.wanted);
    let options = options(config, job, envelope);
    transfer_to(received, &target, &options)
}

fn around_bytes(wrapping: Wrapping) -> Envelope {
    match wrapping {
        Wrapping::Snappy => Envelope::Snappy,
        Wrapping::Frames => Envelope::Frames,
    }
}

fn around_tar(wrapping: Wrapping) -> Envelope {
    match wrapping {
        Wrapping::Snappy => Envelope::SnappyTar,
        Wrapping::Frames => Envelope::FramesTar,
    }
}

fn transfer_to(
    received: &Received,
    target: &target::Options,
    options: &transfer::Options,
) -> Result<(), Error> {
    let report = transfer::transfer(received, target, options)?;
    let path = target.path.display();
    tracing::info!(
        "Read {} bytes, wrote {} bytes to {path}",
        report.source_bytes,
        report.written_bytes
    );
    tracing::info!("Wrote data to {path}");
    Ok(())
}

fn unpack(config: &Config, job: &Job, received: &Received, envelope: Envelope) -> Result<(), Error> {
    let dir = &config.destination.dir;
    let target = archive::Options {
        dir: dir.clone(),
        available: target::free_space(dir)?,
    };
    let report = archive::unpack(received, &target, &options(config, job, envelope))?;
    tracing::info!(
        "Read {} bytes, unpacked {} entries with {} bytes into {}",
        report.source_bytes,
        report.entries,
        report.data_bytes,
        dir.display()
    );
    tracing::info!("Wrote archive data");
    Ok(())
}

fn options(config: &Config, job: &Job, envelope: Envelope) -> transfer::Options {
    transfer::Options {
        checksum: match &job.plan.promise {
            Promise::Known(checksum) => Some(checksum.clone()),
            Promise::None | Promise::Trailer => None,
        },
        envelope,
        // A clone is whatever the other volume holds.
        full_header: config.full_header && !job.plan.content.is_clone(),
        // The client is still there until its last byte, and a body that breaks there is broken.
        read_all: true,
        speed_limit: config.speed_limit,
        workers: app::job::data_threads(),
        scratch: scratch(config),
        stop: job.stop.clone(),
        observer: Arc::clone(&job.progress) as Arc<dyn Observer>,
        ..transfer::Options::default()
    }
}

/// The scratch volume, if one is mounted and has room; almost no image needs it.
fn scratch(config: &Config) -> Option<std::path::PathBuf> {
    let folder = config.destination.scratch.clone()?;
    target::free_space(&folder)
        .is_ok_and(|free| free > 0)
        .then_some(folder)
}
