//! The command `kubectl cdi upload`: creates a volume or uses an existing one, and sends an image
//! to it.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use codec::encode::{CompressionRule, Encoding};
use program::env::{ProcessEnv, is_pace_fixed};
use program::exit::ExitReason;
use program::progress::BinaryBytes;
use stream::error::errno_text;
use tokio_util::sync::CancellationToken;

use super::args::{EncodingOption, UploadArgs};
use super::planner::VolumePlanner;
use super::view::{VolumeJobEvent, VolumeJobView};
use super::{shell_word, under_signals};
use crate::cluster::size::{VolumeSize, check_fits};
use crate::cluster::{
    CdiConfig, Cluster, ContentSource, ObjectUid, VolumeTarget, WaitGoal, WaitReason, WantedVolume,
};
use crate::error::{PluginError, PluginErrorKind, on_thread};
use crate::image::ImageFile;
use crate::send::{CompletedUpload, LockedFile, ProxyClient, TokenCache, UploadTask, state_folder};

pub(super) fn run_upload(arguments: UploadArgs, words: &[OsString]) -> Result<(), PluginError> {
    let view = VolumeJobView::default();
    let (target, shown) = (arguments.target.to_string(), arguments.shown.clone());
    let uploading = upload_image(arguments, view.clone());
    let job = || {
        // Without a volume there is nothing to resume, so no command is suggested.
        under_signals(uploading, || {
            let is_begun = view.has_volume.load(Ordering::Relaxed);
            is_begun.then(|| format!("resume it with: {}", continuation_command(words)))
        })
    };
    view.run_shown(&shown, job, |sent, seconds, warnings| {
        let image_bytes = view.total.load(Ordering::Relaxed);
        let (image, stream) = (BinaryBytes(image_bytes), BinaryBytes(sent.stream_bytes));
        let summary = format!("{image} uploaded into {target} as {stream} in {seconds:.1} s");
        let event = VolumeJobEvent::Done {
            target: target.clone(),
            image_bytes,
            sent_bytes: sent.stream_bytes,
            sent_again_bytes: sent.again,
            resumable: sent.is_resumable,
            seconds,
            retries: view.watch.retries(),
            warnings,
        };
        (summary, event)
    })
}

/// Returns the command line that resumes this upload: the given arguments with `--no-create`.
fn continuation_command(words: &[OsString]) -> String {
    let mut command = "kubectl cdi".to_owned();
    let words = words.iter().map(|word| word.to_string_lossy());
    for word in words.filter(|word| word != "--no-create").chain(["--no-create".into()]) {
        command.push(' ');
        command.push_str(&shell_word(&word));
    }
    command
}

/// Runs the upload. Returns `None` for a dry run, which has already printed the manifest.
async fn upload_image(
    arguments: UploadArgs,
    view: VolumeJobView,
) -> Result<Option<CompletedUpload>, PluginError> {
    let (path, is_archive, format) = (arguments.image.clone(), arguments.archive, arguments.format);
    // The image is opened on a blocking thread, because reading the tables of a large image takes
    // a while and signals must be handled meanwhile.
    let checksum = arguments.checksum.clone();
    let opening = move || ImageFile::open(&path, is_archive, format)?.with_checksum(checksum);
    let image = Arc::new(on_thread(opening).await?);
    view.total.store(image.identity.bytes, Ordering::Relaxed);
    let planner = VolumePlanner::connect(&arguments.volume, &arguments.cluster).await?;
    let job = ImageUpload { arguments: &arguments, planner: &planner, image, view };
    let Some((cluster, config)) = planner.cluster() else {
        planner.print_manifest(&job.planned_volume().await?).await?;
        return Ok(None);
    };
    let proxy = proxy_client(&arguments, config)?;
    let made = job.prepare_volume(cluster, config, &proxy).await?;
    job.view.has_volume.store(true, Ordering::Relaxed);
    let sent = job.fill_volume(cluster, &proxy).await;
    if let (Err(failed), Some(uid)) = (&sent, made) {
        // A retry with the same image and volume would only be rejected again.
        let is_final =
            failed.kind == PluginErrorKind::Rejected || failed.exit == ExitReason::Checksum;
        let is_useless = is_final || job.view.watch.handed_over() == 0;
        clean_up(cluster, &arguments.target, &uid, is_useless).await;
    }
    sent.map(Some)
}

/// An upload of an opened image.
struct ImageUpload<'a> {
    arguments: &'a UploadArgs,
    planner: &'a VolumePlanner<'a>,
    image: Arc<ImageFile>,
    view: VolumeJobView,
}

impl ImageUpload<'_> {
    /// Creates the volume and returns its UID. With `--no-create`, checks instead that the existing
    /// volume is suitable, and returns `None`.
    async fn prepare_volume(
        &self,
        cluster: &Cluster,
        config: &CdiConfig,
        proxy: &ProxyClient,
    ) -> Result<Option<ObjectUid>, PluginError> {
        let target = &self.arguments.target;
        if self.arguments.volume.no_create {
            let found = cluster.find_existing(target).await?;
            found.takes_upload(target, self.arguments.archive)?;
            // A size that is not known is not checked.
            if let (Some(claim), Some(disk)) = (found.claim_bytes(), self.image.disk_bytes()) {
                let overhead = config.class_overhead(found.storage_class());
                check_fits(target, claim, found.volume_mode(), overhead, disk)?;
            }
            return Ok(None);
        }
        // This is checked first, so that no volume is created if the proxy is not trusted.
        proxy.check_certificate().await?;
        Ok(Some(cluster.create_volume(&self.planned_volume().await?).await?))
    }

    /// Plans the volume. Its size is the value of `--size`, or the size that the disk in the image
    /// requires.
    async fn planned_volume(&self) -> Result<WantedVolume, PluginError> {
        let UploadArgs { target, volume, archive, .. } = self.arguments;
        let size = match (volume.size, self.image.disk_bytes()) {
            (Some(size), Some(disk)) if size < disk => {
                return Err(PluginError::usage(format!(
                    "the disk in {} has {disk} bytes, more than --size {size}",
                    self.arguments.image.display()
                )));
            }
            (Some(size), _) => VolumeSize::Given(size),
            (None, None) if *archive => {
                return Err(PluginError::usage(
                    "cannot tell the size of an archive's content: give --size",
                ));
            }
            (None, Some(disk)) => VolumeSize::ForDisk(disk),
            (None, None) => VolumeSize::ForDisk(self.measure_disk().await?),
        };
        Ok(WantedVolume {
            target: target.clone(),
            source: ContentSource::Upload,
            size_bytes: self.planner.request_bytes(target, size).await,
            archive: *archive,
            options: volume.options.clone(),
        })
    }

    /// Reads the whole image to find the size of its disk, and displays this as the reason for
    /// waiting.
    async fn measure_disk(&self) -> Result<u64, PluginError> {
        self.view.watch.set_wait_reason("reading the whole image to find the disk size");
        let stop = CancellationToken::new();
        // The guard stops the blocking thread however this function ends, even by a signal.
        let _guard = stop.clone().drop_guard();
        let image = Arc::clone(&self.image);
        on_thread(move || image.measure_bytes(stop)).await
    }

    /// Waits for the upload pod, sends the image, and waits until CDI reports the volume as filled.
    async fn fill_volume(
        &self,
        cluster: &Cluster,
        proxy: &ProxyClient,
    ) -> Result<CompletedUpload, PluginError> {
        let (target, time_limit) = (&self.arguments.target, self.arguments.timeout.0);
        let watch = &self.view.watch;
        let told = |waiting: &WaitReason| watch.set_wait_reason(waiting.to_string());
        let found = cluster.wait_for_goal(target, WaitGoal::Ready, time_limit, told).await?;
        let place = match (found.claim_uid(target)?, state_folder()) {
            // Archives need no ledger, because no server supports resumable archive uploads.
            (Some(uid), Some(states)) if !self.arguments.archive => {
                // On a blocking thread, because a network file system may hang.
                on_thread(move || LockedFile::open(&states, &uid)).await?
            }
            _ => None,
        };
        let is_encoded = self.arguments.encoding == EncodingOption::Auto && self.image.is_plain();
        let rule = CompressionRule::new(is_pace_fixed(&ProcessEnv));
        let sending = UploadTask {
            proxy,
            tokens: &TokenCache::new(cluster.clone(), target.name()),
            image: &self.image,
            encoding: if is_encoded { Encoding::Zstd(rule) } else { Encoding::Plain },
            place: place.as_ref(),
            is_archive: self.arguments.archive,
            stall_limit: time_limit,
            watch,
        };
        let sent = sending.run().await?;
        cluster.wait_for_goal(target, WaitGoal::Filled, time_limit, told).await?;
        Ok(sent)
    }
}

/// Removes a volume that was created for a failed upload, if it `is_useless`. Otherwise the volume
/// is kept, because it is needed to resume the upload.
async fn clean_up(cluster: &Cluster, target: &VolumeTarget, uid: &ObjectUid, is_useless: bool) {
    if !is_useless {
        tracing::warn!("{target} is kept: an upload with --no-create resumes it, or starts over");
        return;
    }
    match cluster.remove_volume(target, uid).await {
        Ok(()) => tracing::warn!("{target}, which was created for this upload, was deleted"),
        Err(error) => {
            tracing::warn!("{target}, which was created for this upload, is still there: {error}")
        }
    }
}

fn proxy_client(arguments: &UploadArgs, config: &CdiConfig) -> Result<ProxyClient, PluginError> {
    let url = match &arguments.uploadproxy_url {
        Some(url) => url.clone(),
        None => config.proxy_url()?.into(),
    };
    let mut pem = config.proxy_ca().unwrap_or_default().as_bytes().to_vec();
    if let Some(path) = &arguments.cacert {
        let read = std::fs::read(path);
        let read = read.map_err(|error| {
            let (path, reason) = (path.display(), errno_text(&error));
            PluginError::usage(format!("cannot read {path}: {reason}; check --cacert"))
        });
        pem.extend(read?);
    }
    ProxyClient::new(&url, (!arguments.insecure).then_some(pem.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_resumes_repeats_the_given_words() {
        let words = ["upload", "my disk's.raw", "dv/a", "-n", "vms"].map(OsString::from);
        let expected = r"kubectl cdi upload 'my disk'\''s.raw' dv/a -n vms --no-create";
        assert_eq!(continuation_command(&words), expected);
        let words: Vec<OsString> = ["upload", "a", "--no-create", "dv/a"].map(Into::into).into();
        assert_eq!(continuation_command(&words), "kubectl cdi upload a dv/a --no-create");
    }
}
