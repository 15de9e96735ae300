//! Runs `cdi-importer check`, which looks for damage in the tables of an image.

use std::fmt::Write;
use std::sync::Arc;

use datapath::check::{CheckReport, check_image};
use program::progress::BinaryBytes;
use serde_json::{Value, json};
use stream::observe::NoObserver;

use super::args::CheckArgs;
use super::failure::{ImporterCommandError, of_source, usage_error};

pub(super) fn run(mut arguments: CheckArgs) -> Result<(), ImporterCommandError> {
    arguments.source.limit_retries();
    if arguments.source.content.ova {
        let what = "--ova is for import, convert and info: a check reads an image in place, so extract it with tar first";
        return Err(usage_error(what));
    }
    arguments.log.begin_logging(super::PROGRAM);
    let is_json = arguments.json;
    let (name, report) = super::on_runtime(NoObserver::new_shared(), move |context| {
        let content = arguments.source.content.payload_kind();
        let limits = &arguments.source.limits;
        let reading = limits.read_options(context.stop.clone(), Arc::clone(&context.observer));
        let source = context.open_image(&arguments.source, false)?;
        let checked = check_image(&*source, content, &reading, arguments.data);
        Ok((source.name(), checked.map_err(of_source(|| source.name()))?))
    })?;
    let text = if is_json {
        printable::escape_json(&format!("{:#}\n", as_json(&name, &report))).into_owned()
    } else {
        as_text(&name, &report)
    };
    super::print_bytes(text.as_bytes())?;
    match report.findings.error_count {
        0 => Ok(()),
        count => Err(ImporterCommandError::Damaged(count, name, report.format)),
    }
}

/// Returns the number of bytes of the image that are neither data nor tables. Headers count as
/// unused, except the header of a qcow2 image, which counts as a table.
fn unused_bytes(report: &CheckReport) -> u64 {
    let used = report.findings.data_bytes + report.findings.table_bytes;
    report.image_bytes.saturating_sub(used)
}

fn as_json(name: &str, report: &CheckReport) -> Value {
    let findings = &report.findings;
    json!({
        "source": name,
        "format": report.format.to_string(),
        "virtual_size": report.virtual_size,
        "image_bytes": report.image_bytes,
        "data_bytes": findings.data_bytes,
        "table_bytes": findings.table_bytes,
        "unused_bytes": unused_bytes(report),
        "errors": findings.error_count,
        "errors_unknown_to_qemu": findings.unknown_to_qemu,
        "first_errors": findings.errors,
        "leaked_clusters": findings.leaked_clusters,
        "inflated_clusters": report.inflated_clusters,
    })
}

fn as_text(name: &str, report: &CheckReport) -> String {
    let findings = &report.findings;
    let mut text = String::new();
    let mut row = |label: &str, value: String| {
        // Writing to a String cannot fail.
        writeln!(text, "{label:<18} {}", printable::escape_text(&value)).ok();
    };
    row("source", name.to_owned());
    row("format", report.format.to_string());
    for (label, bytes) in [
        ("virtual size", report.virtual_size),
        ("image size", report.image_bytes),
        ("data", findings.data_bytes),
        ("tables", findings.table_bytes),
        ("unused", unused_bytes(report)),
    ] {
        row(label, format!("{} ({bytes} bytes)", BinaryBytes(bytes)));
    }
    if let Some(count) = report.inflated_clusters {
        row("inflated", format!("{count} compressed clusters"));
    }
    row("leaked clusters", findings.leaked_clusters.to_string());
    row("errors", findings.error_count.to_string());
    for error in &findings.errors {
        row("error", error.clone());
    }
    text
}
