//! Runs `cdi-importer unpack`, which unpacks a tar archive into a directory.

use std::time::Duration;

use datapath::disk;
use datapath::unpack::{self, UnpackReport};
use program::progress::{BinaryBytes, ProgressMode, bytes_per_second};

use super::args::UnpackArgs;
use super::failure::{ImporterCommandError, of_source};
use super::job;
use super::open::JobContext;
use super::target;

pub(super) fn run(arguments: UnpackArgs) -> Result<(), ImporterCommandError> {
    // No clean-up is needed here: incomplete content is not visible, and the next attempt removes
    // it.
    let has_rate = arguments.source.limits.limit_rate.is_some();
    job::run_job(
        ProgressMode::Auto,
        &arguments.job.output.clone(),
        move |context| unpack_archive(&arguments, context),
        |display, report, time, watch| {
            let limits = watch.times().limits_suffix(time, has_rate);
            display.show_summary(|| summary(report, time) + &limits, &());
        },
    )
}

fn unpack_archive(
    arguments: &UnpackArgs,
    context: &JobContext,
) -> Result<UnpackReport, ImporterCommandError> {
    target::check_target(&arguments.dir)?;
    let limits = &arguments.source.limits;
    let reading = job::read_options(&arguments.job.transfer, limits, context);
    let is_checked = reading.checksum.is_some();
    let source = job::open_source(&arguments.source, context, is_checked, "an archive is a tar")?;
    let target = unpack::UnpackOptions {
        dir: arguments.dir.clone(),
        overwrite: arguments.overwrite,
        available: disk::free_space(&arguments.dir).map_err(stream::Error::from)?,
    };
    unpack::unpack_archive(&*source, &target, &reading).map_err(of_source(|| source.name()))
}

/// Returns the line that reports a success, such as `unpacked gzip > tar: 1200 entries, 1.30 GiB
/// of data, 400.00 MiB read in 2.1 s (190.00 MiB/s)`.
fn summary(report: &UnpackReport, time: Duration) -> String {
    format!(
        "unpacked {}: {} entries, {} of data, {} read in {:.1} s ({}/s){}",
        report.layers.join(" > "),
        report.entries,
        BinaryBytes(report.data_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        BinaryBytes(bytes_per_second(report.source_bytes, time)),
        super::checksum_suffix(report.checksum.as_deref()),
    )
}
