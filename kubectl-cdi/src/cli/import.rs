//! `kubectl cdi import`.

use std::sync::Arc;

use program::command_line::FailedCommand;
use program::progress::ProgressDisplay;

use super::args::ClusterImportArgs;
use super::failure::PluginCommandError;
use super::view::{UploadEvent, UploadView};
use super::{PROGRAM, print_dry_run, size_for, under_signals, wanted_volume};
use crate::cluster::{Cluster, ClusterImport, ContentSource};
use crate::remote;
use crate::send::UploadWatch;

pub(super) fn run_import(arguments: ClusterImportArgs) -> Result<(), PluginCommandError> {
    let display = ProgressDisplay::from_args(PROGRAM, arguments.shown.progress, &arguments.shown.output);
    let view = UploadView::default();
    let target = arguments.target.to_string();
    let importing = import_volume(arguments, Arc::clone(&view.watch));
    // What was made stays, and the cluster goes on with it.
    let result = display.run_watched(view, || under_signals(importing, PluginCommandError::from_signal));
    match &result {
        Ok(None) => {}
        Ok(Some(summary)) => {
            display.show_summary(|| summary.clone(), &UploadEvent::Imported { target: &target })
        }
        Err(failed) => display.conclude_failed(&UploadEvent::Error {
            message: failed.to_string(),
            code: failed.exit_reason().exit_code(),
        }),
    }
    result.map(drop)
}

/// Imports; `None` if nothing was to be done, else what was.
async fn import_volume(
    arguments: ClusterImportArgs,
    watch: Arc<UploadWatch>,
) -> Result<Option<String>, PluginCommandError> {
    let (target, volume) = (&arguments.target, &arguments.volume);
    let source = ClusterImport {
        secret: arguments.secret.clone(),
        cert_config_map: arguments.cert_configmap.clone(),
        checksum: arguments.checksum.clone(),
        ..ClusterImport::new(&arguments.url, arguments.endpoint.as_ref())?
    };
    source.check_fields()?;
    let cluster = Cluster::connect(&arguments.cluster.into()).await?;
    if !volume.no_create {
        let config = cluster.cdi_config().await?;
        let size = match volume.size {
            Some(size) => size,
            None => {
                watch.set_wait_reason("looking how large the disk is");
                let disk_bytes = remote::disk_bytes(&arguments.url).await?;
                size_for(&cluster, &config, target, volume, disk_bytes).await
            }
        };
        let wanted = wanted_volume(target, ContentSource::Import(source), volume, false, size);
        if print_dry_run(&wanted, volume)? {
            return Ok(None);
        }
        cluster.create_volume(&wanted).await?;
    }
    if arguments.no_wait {
        return Ok(Some(format!("{target} is made; kubectl cdi status {target} shows how far it is")));
    }
    cluster
        .follow_import(target, arguments.timeout.0, |progress| watch.set_wait_reason(progress.to_string()))
        .await?;
    Ok(Some(format!("{} imported into {target}", arguments.url)))
}
