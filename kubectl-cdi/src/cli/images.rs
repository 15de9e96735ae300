//! The command `kubectl cdi images`: shows and changes the images of CDI's workers.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use program::command_line;
use program::command_line::values::DurationValue;

use super::trial::{TRY_EXAMPLES, TryArgs, run_trial};
use super::{PROGRAM, print_text, run_quietly, under_signals};
use crate::cluster::images::{CdiOperator, ImageRegistry, ImagesGoal};
use crate::cluster::{Cluster, ClusterOptions};
use crate::error::PluginError;

pub(super) const IMAGES_EXAMPLES: &str = "\
Examples:
  kubectl cdi images                              # show the images
  kubectl cdi images try https://example.org/fedora.qcow2
  kubectl cdi images use ghcr.io/me/cdi-workers   # use ours
  kubectl cdi images restore                      # go back";

/// Options of `kubectl cdi images`.
#[derive(Debug, Args)]
pub(super) struct ImagesArgs {
    #[command(subcommand)]
    command: Option<ImagesCommand>,

    /// Output format of `status` and `try`: json [default: a table]
    #[arg(short, long, global = true, value_name = "FORM", hide_possible_values = true)]
    output: Option<ImagesFormat>,

    /// Namespace of CDI's operator [default: the only one with a deployment cdi-operator]
    #[arg(long, global = true, value_name = "NAME")]
    operator_namespace: Option<String>,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,
}

#[derive(Debug, Subcommand)]
enum ImagesCommand {
    /// Show which images CDI uses (default)
    Status,
    /// Make CDI use the images of a registry
    Use(ImagesUseArgs),
    /// Restore the images of before the first `use`
    Restore(ImagesChangeArgs),
    /// Import an image with CDI's importer and with ours, and compare the disks and their cost
    #[command(after_help = TRY_EXAMPLES)]
    Try(Box<TryArgs>),
}

/// Values of `images -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ImagesFormat {
    /// A JSON object
    Json,
}

#[derive(Debug, Args)]
struct ImagesUseArgs {
    /// Folder with our images, such as ghcr.io/me/cdi-workers:0.1.0 [default of the tag: this
    /// program's version]
    #[arg(value_name = "REGISTRY[:TAG]", value_hint = ValueHint::Other)]
    registry: ImageRegistry,

    /// Use cdi-importer-vddk, which reads VMware's disks
    #[arg(long)]
    vddk: bool,

    #[command(flatten)]
    change: ImagesChangeArgs,
}

#[derive(Debug, Args)]
struct ImagesChangeArgs {
    /// Wait this long until CDI uses the images
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: DurationValue,

    /// Only print what would change
    #[arg(long, value_name = "WHERE", value_enum)]
    dry_run: Option<ChangeDryRun>,
}

/// Values of `images use --dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChangeDryRun {
    /// Do not send the change
    Client,
    /// Let the cluster validate the change
    Server,
}

pub(super) fn run_images(arguments: ImagesArgs) -> Result<(), PluginError> {
    let ImagesArgs { command, output, operator_namespace, cluster } = arguments;
    let find = async || {
        let cluster = Cluster::connect(&cluster).await?;
        CdiOperator::find(&cluster, operator_namespace.as_deref()).await
    };
    let (goal, change) = match command {
        None | Some(ImagesCommand::Status) => {
            return run_quietly(async {
                let report = find().await?.report().await?;
                print_text(&match output {
                    Some(ImagesFormat::Json) => format!("{:#}\n", report.json),
                    None => report.to_table(),
                })?;
                report.warnings.iter().for_each(print_warning);
                Ok(())
            });
        }
        Some(ImagesCommand::Try(own)) => return run_trial(&own, &cluster, output.is_some()),
        Some(_) if output.is_some() => {
            return Err(PluginError::usage(
                "--output is only for `images status` and `images try`",
            ));
        }
        Some(ImagesCommand::Use(ImagesUseArgs { registry, vddk, change })) => {
            (ImagesGoal::Use(registry, vddk), change)
        }
        Some(ImagesCommand::Restore(change)) => (ImagesGoal::Restore, change),
    };
    program::install_provider();
    let changing = async { change_images(&find().await?, &goal, &change).await };
    under_signals(changing, || Some("look at `kubectl cdi images`".to_owned()))
}

async fn change_images(
    operator: &CdiOperator,
    goal: &ImagesGoal,
    options: &ImagesChangeArgs,
) -> Result<(), PluginError> {
    let is_server = options.dry_run.map(|place| place == ChangeDryRun::Server);
    if let Some(recipe) = operator.recipe(goal) {
        print_text(&recipe)?;
        let refused = "nothing was changed: that would be undone, or restart other operators";
        return is_server.map(drop).ok_or_else(|| PluginError::target(refused));
    }
    operator.use_warnings(goal).iter().for_each(print_warning);
    let change = operator.change(goal, is_server).await?;
    let lines: String = change.lines.iter().map(|line| format!("  {line}\n")).collect();
    print_text(&match (lines.is_empty(), is_server) {
        (true, _) => format!("{} needs no change\n", change.holder),
        (false, None) => format!("{} changed:\n{lines}", change.holder),
        (false, Some(_)) => format!("{} would change:\n{lines}", change.holder),
    })?;
    if is_server.is_some() {
        return Ok(());
    }
    let told = |reason: &str| command_line::print_line(PROGRAM, reason);
    operator.wait_for_rollout(&change, options.timeout.0, told).await?;
    print_text("CDI uses these images\n")
}

fn print_warning(sentence: &String) {
    command_line::print_error(PROGRAM, format_args!("warning: {sentence}"));
}
