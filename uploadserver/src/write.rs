//! Writes what was received to the disk or the directory: the blocking middle of an upload.

use std::sync::Arc;

use datapath::Error;
use datapath::archive;
use datapath::decode::Codec;
use datapath::disk::{self, Kept};
use datapath::observe::Observer;
use datapath::options::{Layers, Payload, Reading, Writing};
use datapath::transfer;
use diskimage::Format;
use http::StatusCode;
use volume::{Volume, watch};

use crate::checksum::Promise;
use crate::config::Config;
use crate::failure::{Doing, UploadFailed};
use crate::intake::Received;
use crate::job::{Content, Job, Success, Wrapping};
use crate::memory;

/// Writes what comes out of `received`. Returns when it is complete and on the disk, or nothing
/// of it is left, on the disk or in memory.
pub(crate) fn write(config: &Config, job: &Job, received: Received) -> Result<Success, UploadFailed> {
    volume::limits::of_next_transfer();
    let written = transferred(config, job, &received);
    drop(received);
    memory::give_back();
    written
}

fn transferred(config: &Config, job: &Job, received: &Received) -> Result<Success, UploadFailed> {
    let content = job.plan.content;
    let is_device = disk::is_block_device(&config.destination.disk);
    let written = match content {
        Content::Archive => unpack(config, job, received, Layers::Sniffed),
        Content::FilesClone(wrapping) if !is_device => unpack(config, job, received, layer(wrapping)),
        Content::Image => image(config, job, received),
        Content::DeviceClone(wrapping) => clone(config, job, received, wrapping, Payload::RAW),
        Content::FilesClone(wrapping) => clone(config, job, received, wrapping, Payload::CloneOfFiles),
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
            job.progress.transfers.failed(&error);
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
    let (disk, size) = (&config.destination.disk, config.wanted.size);
    let kept = kept(config, job)?;
    let volume = match &kept {
        Some(kept) => Volume::behind(disk, size, kept)?,
        None => Volume::of(disk, size)?,
    };
    let target = volume.target_options(&config.wanted);
    let reading = reading(config, job, Layers::Sniffed);
    // What has marks is a raw disk: its client has looked at all of it.
    let payload = match &kept {
        Some(_) => Payload::RAW,
        None => Payload::default(),
    };
    transfer_to(config, received, payload, &target, &reading, kept)
}

/// What an earlier upload has left and the client has marks of; the client is told.
fn kept(config: &Config, job: &Job) -> Result<Option<Arc<Kept>>, Error> {
    let Some(resumable) = job.resumable.as_ref().filter(|_| !job.plan.marks.is_empty()) else {
        return Ok(None);
    };
    let kept = Kept::find(&config.destination.disk, &job.plan.marks, &job.stop)?;
    resumable
        .kept
        .send_replace(Some(kept.as_ref().map_or(0, Kept::end)));
    Ok(kept.map(Arc::new))
}

/// A clone has the size that it has, and nothing of it is looked at.
fn clone(
    config: &Config,
    job: &Job,
    received: &Received,
    wrapping: Wrapping,
    payload: Payload,
) -> Result<(), Error> {
    let volume = Volume::of(&config.destination.disk, None)?;
    let target = volume.clone_options(&config.wanted);
    let reading = reading(config, job, layer(wrapping));
    transfer_to(config, received, payload, &target, &reading, None)
}

/// The one layer around a clone.
fn layer(wrapping: Wrapping) -> Layers {
    Layers::Only(match wrapping {
        Wrapping::Snappy => Codec::Snappy,
        Wrapping::Zstd => Codec::Zstd,
    })
}

fn transfer_to(
    config: &Config,
    received: &Received,
    payload: Payload,
    target: &disk::Options,
    reading: &Reading,
    kept: Option<Arc<Kept>>,
) -> Result<(), Error> {
    let writing = Writing {
        workers: program::job::data_threads(),
        scratch: config.destination.scratch.clone().and_then(volume::scratch),
        kept,
        ..Writing::default()
    };
    let report = transfer::transfer(received, payload, target, reading, &writing)?;
    watch::log_transfer(report.source_bytes, report.written_bytes, &target.path);
    tracing::info!("Wrote data to {}", target.path.display());
    Ok(())
}

fn unpack(config: &Config, job: &Job, received: &Received, layers: Layers) -> Result<(), Error> {
    let dir = &config.destination.dir;
    let target = archive::Options {
        dir: dir.clone(),
        overwrite: true,
        available: disk::free_space(dir)?,
    };
    let report = archive::unpack(received, &target, &reading(config, job, layers))?;
    watch::log_unpacked(&report, dir);
    tracing::info!("Wrote archive data");
    Ok(())
}

fn reading(config: &Config, job: &Job, layers: Layers) -> Reading {
    let observer = Arc::clone(&job.progress) as Arc<dyn Observer>;
    Reading {
        checksum: match &job.plan.promise {
            Promise::Known(checksum) => Some(checksum.clone()),
            Promise::None | Promise::Later(_) => None,
        },
        layers,
        // A clone is whatever the other volume holds.
        full_header: config.full_header && !job.plan.content.is_clone(),
        // The client is still there until its last byte, and a body that breaks there is broken.
        read_all: true,
        ..config.limits.reading(job.stop.clone(), observer)
    }
}
