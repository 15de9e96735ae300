//! The command `kubectl cdi images try`: imports an image with CDI's importer and with ours, and
//! compares the disks and the cost.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::time::Duration;

use clap::{Args, ValueHint};
use program::command_line::values::DurationValue;
use program::progress::BinaryBytes;
use program::quantity::parse_size;
use program::{command_line, start};
use serde_json::json;
use tokio::time::timeout;
use url::Url;

use super::{PROGRAM, print_text, stopped_error};
use crate::cluster::size::{FileSystem, request_bytes};
use crate::cluster::{
    Cluster, ClusterImport, ClusterOptions, ContentSource, ImportCost, ImportTrial, TrialReport,
    VolumeMode, VolumeOptions, VolumeTarget, VolumeTargetKind, WantedVolume, parse_access_mode,
    parse_endpoint, random_word,
};
use crate::error::{PluginError, on_thread};
use crate::remote;
use crate::send::{LockedFile, state_folder};

pub(super) const TRY_EXAMPLES: &str = "\
Examples:
  # Compare CDI's importer with this image, and remove both disks
  kubectl cdi images try https://example.org/fedora.qcow2 \\
      --image registry.example.org/cdi-workers/cdi-importer:0.1.0

  # Print JSON for a script
  kubectl cdi images try https://example.org/fedora.qcow2 --storage-class fast -o json";

/// The image of our importer, if the builder of this program names one.
const IMPORTER_IMAGE: Option<&str> = option_env!("CDI_IMPORTER_IMAGE");

/// The file in the user's state folder with the owner's name of trials. One trial runs at a time.
const OWNER_FILE: &str = "try";

/// Maximum length of that name.
const MAX_OWNER_BYTES: u64 = 63;

/// Time limit for the removal of the objects.
const REMOVAL_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub(super) struct TryArgs {
    /// The image: `http(s)://`, `docker://`, `s3://` or `gs://`, as the cluster reaches it
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    url: String,

    /// Image of cdi-importer to compare with CDI's
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Server of an s3:// URL
    #[arg(long, value_name = "URL", value_parser = parse_endpoint, help_heading = "Source")]
    endpoint: Option<Url>,

    /// Secret with credentials for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    secret: Option<String>,

    /// ConfigMap with certificates for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    cert_configmap: Option<String>,

    /// Size of each volume, such as 10Gi [default: the size of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Volume")]
    size: Option<u64>,

    /// Storage class [default: the cluster's]
    #[arg(long, value_name = "NAME", help_heading = "Volume")]
    storage_class: Option<String>,

    /// Access mode, such as ReadWriteMany or RWX [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE", value_parser = parse_access_mode, help_heading = "Volume")]
    access_mode: Option<String>,

    /// Filesystem or Block [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE", help_heading = "Volume")]
    volume_mode: Option<VolumeMode>,

    /// Wait this long for each import
    #[arg(long, value_name = "TIME", default_value = "1h")]
    timeout: DurationValue,
}

pub(super) fn run_trial(
    arguments: &TryArgs,
    options: &ClusterOptions,
    as_json: bool,
) -> Result<(), PluginError> {
    program::install_provider();
    let report = start::on_runtime(async |shutdown| {
        let stopped = shutdown.cancel_token();
        let (trial, _turn) = tokio::select! {
            prepared = prepare_trial(arguments, options) => prepared?,
            () = stopped.cancelled() => return Err(stopped_error(&shutdown, None)),
        };
        let told = |step: &str| command_line::print_line(PROGRAM, step);
        let result = tokio::select! {
            result = trial.run(&arguments.url, told) => result,
            () = stopped.cancelled() => Err(stopped_error(&shutdown, None)),
        };
        let reason = match timeout(REMOVAL_LIMIT, trial.cluster.remove_trials(&trial.owner)).await {
            Ok(Ok(())) => return result,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", REMOVAL_LIMIT.as_secs()),
        };
        let target = &trial.wanted.target;
        told(&format!("warning: {target} is still there: {reason}; the next try removes it"));
        result
    })?;
    print_text(&match as_json {
        true => format!("{:#}\n", json!(report)),
        false => format_report(&report),
    })?;
    report.conclude()
}

/// Checks everything that can be checked before an object is created, and removes the objects of an
/// earlier trial that was killed. The file is locked until it is dropped.
async fn prepare_trial(
    arguments: &TryArgs,
    options: &ClusterOptions,
) -> Result<(ImportTrial, Option<LockedFile>), PluginError> {
    let image = arguments.image.as_deref().or(IMPORTER_IMAGE);
    let image = image.ok_or_else(|| {
        PluginError::usage("no image to try is known: give --image with an image of cdi-importer")
    })?;
    let source = ClusterImport {
        secret: arguments.secret.clone(),
        cert_config_map: arguments.cert_configmap.clone(),
        ..ClusterImport::new(&arguments.url, arguments.endpoint.as_ref())?
    };
    source.check_fields()?;
    let cluster = Cluster::connect(options).await?;
    cluster.check_trial(image).await?;
    let name = format!("try-{}", random_word());
    let target = VolumeTarget::new(VolumeTargetKind::DataVolume, &name);
    let target = target.map_err(PluginError::internal)?;
    let options = VolumeOptions {
        storage_class: arguments.storage_class.clone(),
        access_mode: arguments.access_mode.clone(),
        volume_mode: arguments.volume_mode,
        force_bind: true,
        ..VolumeOptions::default()
    };
    let size_bytes = match arguments.size {
        Some(size) => size,
        None => {
            let disk_bytes = remote::disk_bytes(&source, None).await?;
            let class = options.storage_class.as_deref();
            let overhead = cluster.cdi_config().await?.class_overhead(class);
            let file_system = FileSystem { overhead, is_xfs: cluster.is_xfs(class).await };
            request_bytes(
                target.kind(),
                disk_bytes,
                options.volume_mode.unwrap_or_default(),
                file_system,
            )
        }
    };
    let (turn, owner) = on_thread(take_turn).await?;
    cluster.remove_trials(&owner).await?;
    let source = ContentSource::Import(source);
    let wanted = WantedVolume { target, source, size_bytes, archive: false, options };
    let (image, time_limit) = (image.to_owned(), arguments.timeout.0);
    Ok((ImportTrial { cluster, wanted, owner, image, time_limit }, turn))
}

/// Fails if another trial of this user runs. Returns the owner's name of trials, by which the
/// objects of a killed one are found. If the state folder cannot be used, the name is new, and such
/// objects stay.
fn take_turn() -> Result<(Option<LockedFile>, String), PluginError> {
    match state_folder().map(|states| LockedFile::open_named(&states, OWNER_FILE)) {
        Some(Ok(locked)) => {
            let owner = locked.clone_file().and_then(|file| read_owner(&file));
            Ok((Some(locked), owner.unwrap_or_else(|_| random_word())))
        }
        Some(Err(TryLockError::WouldBlock)) => {
            let what = "another `kubectl cdi images try` is running: wait for its end";
            Err(PluginError::target(what))
        }
        Some(Err(TryLockError::Error(_))) | None => Ok((None, random_word())),
    }
}

/// Reads the owner's name from its file, or writes a new one into an empty file.
fn read_owner(mut file: &File) -> io::Result<String> {
    let mut owner = String::new();
    file.take(MAX_OWNER_BYTES).read_to_string(&mut owner)?;
    if owner.is_empty() {
        owner = random_word() + &random_word();
        file.write_all(owner.as_bytes())?;
    }
    Ok(owner)
}

/// Formats one value of a cost. `None` if it is not known.
type CostCell = fn(&ImportCost) -> Option<String>;

/// Formats the report as a table.
fn format_report(report: &TrialReport) -> String {
    const ROWS: [(&str, CostCell); 6] = [
        ("result", |cost| {
            Some(if cost.error.is_some() { "failed" } else { "imported" }.to_owned())
        }),
        ("time", |cost| Some(format!("{} s", cost.seconds?))),
        ("restarts", |cost| {
            let killed = if cost.killed_for_memory { ", killed for memory" } else { "" };
            Some(format!("{}{killed}", cost.restarts))
        }),
        ("scratch", |cost| Some(cost.scratch.clone().unwrap_or_else(|| "none".to_owned()))),
        ("CPU time", |cost| Some(format!("{:.1} s", cost.cpu_seconds?))),
        ("memory", |cost| Some(BinaryBytes(cost.memory_bytes?).to_string())),
    ];
    let both = [&report.theirs, &report.ours];
    let mut text = format!("{:<9} {:<24} cdi-workers\n", "", "CDI");
    for (label, value) in ROWS {
        let [theirs, ours] = both.map(|cost| value(cost).unwrap_or_else(|| "-".to_owned()));
        // Writing to a String cannot fail.
        writeln!(text, "{label:<9} {theirs:<24} {ours}").ok();
    }
    if both.iter().all(|cost| cost.cpu_seconds.is_none()) {
        text.push_str("CPU time and memory: not measured, needs get on pods.metrics.k8s.io\n");
    }
    if report.equal == Some(true) {
        text.push_str("the disks are equal\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_compares_both_imports() {
        let theirs = ImportCost {
            seconds: Some(63),
            restarts: 3,
            killed_for_memory: true,
            scratch: Some("5Gi".to_owned()),
            error: Some("OOMKilled".to_owned()),
            ..ImportCost::default()
        };
        let ours = ImportCost {
            seconds: Some(8),
            cpu_seconds: Some(5.25),
            memory_bytes: Some(33 << 20),
            ..ImportCost::default()
        };
        let url = "https://h/d".to_owned();
        let report = TrialReport { url, equal: None, first_difference: None, theirs, ours };
        let expected = [
            "          CDI                      cdi-workers",
            "result    failed                   imported",
            "time      63 s                     8 s",
            "restarts  3, killed for memory     0",
            "scratch   5Gi                      none",
            "CPU time  -                        5.2 s",
            "memory    -                        33.00 MiB",
        ];
        assert_eq!(format_report(&report).lines().collect::<Vec<_>>(), expected);
    }
}
