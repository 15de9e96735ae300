//! `kubectl cdi import`.

use std::sync::Arc;

use program::command_line::Failed;
use program::progress::Display;

use super::args::ImportArgs;
use super::failure::CommandFailed;
use super::view::{Event, View};
use super::{PROGRAM, printed, size_for, under_signals, wanted};
use crate::cluster::{Cluster, Import, Source};
use crate::remote;
use crate::send::Watch;

pub(super) fn run(arguments: ImportArgs) -> Result<(), CommandFailed> {
    let display = Display::begin(PROGRAM, arguments.shown.progress, &arguments.shown.output);
    let view = View::default();
    let target = arguments.target.to_string();
    let importing = import(arguments, Arc::clone(&view.watch));
    // What was made stays, and the cluster goes on with it.
    let result = display.during(view, || under_signals(importing, CommandFailed::signalled));
    match &result {
        Ok(None) => {}
        Ok(Some(summary)) => display.conclude(|| summary.clone(), &Event::Imported { target: &target }),
        Err(failed) => display.conclude_failed(&Event::Error {
            message: failed.to_string(),
            code: failed.exit().code(),
        }),
    }
    result.map(drop)
}

/// Imports; `None` if nothing was to be done, else what was.
async fn import(arguments: ImportArgs, watch: Arc<Watch>) -> Result<Option<String>, CommandFailed> {
    let (target, volume) = (&arguments.target, &arguments.volume);
    let source = Import {
        secret: arguments.secret.clone(),
        cert_config_map: arguments.cert_configmap.clone(),
        checksum: arguments.checksum.clone(),
        ..Import::new(&arguments.url, arguments.endpoint.as_ref())?
    };
    source.check()?;
    let cluster = Cluster::connect(&arguments.cluster.into()).await?;
    if !volume.no_create {
        let config = cluster.cdi_config().await?;
        let size = match volume.size {
            Some(size) => size,
            None => {
                watch.wait("looking how large the disk is");
                let disk_bytes = remote::disk_bytes(&arguments.url).await?;
                size_for(&cluster, &config, target, volume, disk_bytes).await
            }
        };
        let wanted = wanted(target, Source::Import(source), volume, false, size);
        if printed(&wanted, volume)? {
            return Ok(None);
        }
        cluster.create(&wanted).await?;
    }
    if arguments.no_wait {
        return Ok(Some(format!(
            "{target} is made; kubectl cdi status {target} shows how far it is"
        )));
    }
    cluster
        .follow(target, arguments.timeout.0, |progress| {
            watch.wait(progress.to_string())
        })
        .await?;
    Ok(Some(format!("{} imported into {target}", arguments.url)))
}
