//! The command `kubectl cdi import`: creates a volume that CDI fills from a URL.

use std::sync::atomic::Ordering;

use program::command_line::FailedCommand;
use program::progress::ProgressDisplay;
use stream::digest::Checksum;
use stream::options::FORMAT_HEADER;

use super::args::ClusterImportArgs;
use super::dry_run::DryRunVolume;
use super::view::{VolumeJobEvent, VolumeJobView};
use super::{PROGRAM, size_for, under_signals, wanted_volume};
use crate::cluster::size::FileSystem;
use crate::cluster::{Cluster, ClusterImport, ContentSource, WantedVolume};
use crate::error::PluginError;
use crate::{evidence, remote};

pub(super) fn run_import(arguments: ClusterImportArgs) -> Result<(), PluginError> {
    let display =
        ProgressDisplay::from_args(PROGRAM, arguments.shown.progress, &arguments.shown.output);
    let view = VolumeJobView::default();
    let target = arguments.target.to_string();
    let look = format!("kubectl cdi status {target}{}", arguments.cluster.to_words());
    let importing = import_volume(arguments, view.clone());
    // A signal ends only this program. The new volume stays, and CDI continues the import.
    let result = display.run_watched(view.clone(), || {
        under_signals(importing, || {
            view.has_volume.load(Ordering::Relaxed).then(|| {
                format!("the import continues in the cluster; show its progress with: {look}")
            })
        })
    });
    match &result {
        Ok(None) => {}
        Ok(Some(summary)) => {
            let event = VolumeJobEvent::Imported { target: &target, warnings: display.warnings() };
            display.show_summary(|| summary.clone(), &event)
        }
        Err(failed) => display.conclude_failed(&VolumeJobEvent::Error {
            message: failed.to_string(),
            code: failed.exit_reason().exit_code(),
            retries: 0,
            warnings: display.warnings(),
        }),
    }
    result.map(drop)
}

/// Runs the import and returns a summary. Returns `None` for a dry run, which has already printed
/// the manifest.
async fn import_volume(
    arguments: ClusterImportArgs,
    view: VolumeJobView,
) -> Result<Option<String>, PluginError> {
    let asked = arguments.url.clone();
    let arguments = pin_arguments(arguments, &view).await?;
    let (target, volume) = (&arguments.target, &arguments.volume);
    let source = ClusterImport {
        secret: arguments.secret.clone(),
        cert_config_map: arguments.cert_configmap.clone(),
        checksum: arguments.checksum.clone(),
        format: arguments.format.map(|format| format!("{FORMAT_HEADER}: {}", format.name())),
        ..ClusterImport::new(&arguments.url, arguments.endpoint.as_ref())?
    };
    source.check_fields()?;
    if let Some(checksum) = &arguments.checksum {
        let checked: Result<Checksum, _> = checksum.parse();
        checked.map_err(|error| PluginError::usage(format!("--checksum: {error}")))?;
    }
    if let Some(dry_run) = DryRunVolume::begin(volume, &arguments.cluster).await? {
        let file_system = async || dry_run.file_system().await;
        let wanted = planned_volume(&arguments, source, &view, file_system).await?;
        dry_run.print_manifest(&wanted).await?;
        return Ok(None);
    }
    let cluster = Cluster::connect(&arguments.cluster.clone().into()).await?;
    if volume.no_create {
        cluster.find_existing(target).await?;
    } else {
        let config = cluster.cdi_config().await?;
        let class = volume.storage_class.as_deref();
        let file_system = async || cluster.file_system(&config, class).await;
        cluster
            .create_volume(&planned_volume(&arguments, source, &view, file_system).await?)
            .await?;
    }
    view.has_volume.store(true, Ordering::Relaxed);
    if arguments.no_wait {
        return Ok(Some(format!(
            "{target} is created; show its progress with: kubectl cdi status {target}"
        )));
    }
    cluster
        .follow_import(target, arguments.timeout.0, |progress| view.show_import(progress))
        .await?;
    Ok(Some(format!("{asked} imported into {target}")))
}

/// Replaces the URL and the checksum by what the evidence on the command line determines.
async fn pin_arguments(
    mut arguments: ClusterImportArgs,
    view: &VolumeJobView,
) -> Result<ClusterImportArgs, PluginError> {
    let url = arguments.url.clone();
    let evidence = arguments.evidence.clone();
    if let Some(demand) = evidence.signature_demand() {
        view.watch.set_wait_reason("verifying the image's signature");
        arguments.url = evidence::pin_image(url, demand).await?;
    } else if let Some(list) = evidence.verify_sums {
        view.watch.set_wait_reason("verifying the list of checksums");
        let checksum =
            evidence::find_checksum(url, list, evidence.keyring, evidence.signature).await?;
        arguments.checksum = Some(checksum);
    }
    Ok(arguments)
}

/// Plans the volume. Without `--size`, the remote image is inspected to find the size of its disk.
async fn planned_volume(
    arguments: &ClusterImportArgs,
    source: ClusterImport,
    view: &VolumeJobView,
    file_system: impl AsyncFnOnce() -> FileSystem,
) -> Result<WantedVolume, PluginError> {
    let (target, volume) = (&arguments.target, &arguments.volume);
    let size = match volume.size {
        Some(size) => size,
        None => {
            view.watch.set_wait_reason("finding out the disk size");
            let disk_bytes = remote::disk_bytes(&arguments.url, arguments.format).await?;
            size_for(target, volume, disk_bytes, file_system).await
        }
    };
    Ok(wanted_volume(target, ContentSource::Import(source), volume, false, size))
}
