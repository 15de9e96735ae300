//! The command `kubectl cdi import`: creates a volume that CDI fills from a URL.

use std::sync::atomic::Ordering;

use stream::digest::Checksum;
use stream::options::FORMAT_HEADER;

use super::args::ClusterImportArgs;
use super::planner::VolumePlanner;
use super::view::{VolumeJobEvent, VolumeJobView};
use super::{cluster_words, under_signals};
use crate::cluster::{Cluster, ClusterImport, ContentSource, WantedVolume};
use crate::error::PluginError;
use crate::evidence::ImportDemand;

pub(super) fn run_import(arguments: ClusterImportArgs) -> Result<(), PluginError> {
    let view = VolumeJobView::default();
    let (target, shown) = (arguments.target.to_string(), arguments.shown.clone());
    let look = format!("kubectl cdi status {target}{}", cluster_words(&arguments.cluster));
    let importing = import_volume(arguments, view.clone());
    // A signal ends only this program. The new volume stays, and CDI continues the import.
    let job = || {
        under_signals(importing, || {
            view.has_volume.load(Ordering::Relaxed).then(|| {
                format!("the import continues in the cluster; show its progress with: {look}")
            })
        })
    };
    view.run_shown(&shown, job, |summary, _, warnings| {
        (summary, VolumeJobEvent::Imported { target: &target, warnings })
    })
}

/// Runs the import and returns a summary. Returns `None` for a dry run, which has already printed
/// the manifest.
async fn import_volume(
    arguments: ClusterImportArgs,
    view: VolumeJobView,
) -> Result<Option<String>, PluginError> {
    let target = &arguments.target;
    let Some(cluster) = create_volume(&arguments, &view).await? else { return Ok(None) };
    view.has_volume.store(true, Ordering::Relaxed);
    if arguments.no_wait {
        return Ok(Some(format!(
            "{target} is created; show its progress with: kubectl cdi status {target}"
        )));
    }
    cluster
        .follow_import(target, arguments.timeout.0, |progress| view.show_import(progress))
        .await?;
    Ok(Some(format!("{} imported into {target}", arguments.url)))
}

/// Creates the volume, or finds it with `--no-create`, and returns its cluster. Only prints the
/// volume in a dry run, and returns `None`.
async fn create_volume(
    arguments: &ClusterImportArgs,
    view: &VolumeJobView,
) -> Result<Option<Cluster>, PluginError> {
    let (target, volume) = (&arguments.target, &arguments.volume);
    let demand = import_demand(arguments)?;
    if volume.no_create {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        cluster.find_existing(target).await?;
        return Ok(Some(cluster));
    }
    let (source, size) = demand.prepare(&view.watch).await?;
    let planner = VolumePlanner::connect(volume, &arguments.cluster).await?;
    let wanted = WantedVolume {
        target: target.clone(),
        source: ContentSource::Import(source),
        size_bytes: planner.request_bytes(target, size).await,
        archive: false,
        options: volume.options.clone(),
    };
    let Some((cluster, _)) = planner.cluster() else {
        return planner.print_manifest(&wanted).await.map(|()| None);
    };
    cluster.create_volume(&wanted).await?;
    Ok(Some(cluster.clone()))
}

/// Describes the source in CDI's terms, and who must have published it.
fn import_demand(arguments: &ClusterImportArgs) -> Result<ImportDemand, PluginError> {
    let source = ClusterImport {
        secret: arguments.secret.clone(),
        cert_config_map: arguments.cert_configmap.clone(),
        checksum: arguments.checksum.as_ref().map(Checksum::to_string),
        format: arguments.format.map(|format| format!("{FORMAT_HEADER}: {}", format.name())),
        ..ClusterImport::new(&arguments.url, arguments.endpoint.as_ref())?
    };
    source.check_fields()?;
    let publisher = arguments.evidence.publisher_demand(&arguments.url)?;
    Ok(ImportDemand { source, publisher, size: arguments.volume.size, format: arguments.format })
}
