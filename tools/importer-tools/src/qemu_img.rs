//! The `qemu-img info` command. It is for people, and for CDI's functional tests, which inspect
//! disks inside the importer's image, where QEMU is not installed.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use diskimage::Format;
use program::command_line;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::image::{self, ImageSummary};

pub(crate) const PROGRAM: &str = "qemu-img";

/// The message for any other command.
const NOT_QEMU: &str = "this qemu-img is from cdi-workers and supports only the subcommand info; QEMU's own is in the package \
                        qemu-utils (Debian, Ubuntu) or qemu-img (Fedora, RHEL)";

#[derive(Parser)]
#[command(
    name = PROGRAM,
    version,
    about = "Shows information about a disk image, like QEMU's qemu-img",
    after_help = NOT_QEMU,
    disable_help_subcommand = true
)]
struct QemuImgCli {
    #[command(subcommand)]
    command: QemuImgCommand,
}

#[derive(Subcommand)]
enum QemuImgCommand {
    /// Show the format and sizes of an image. No other file is opened, not even a backing file.
    Info {
        /// Output format.
        #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
        output: OutputFormat,
        #[arg(short, long, help = format!("Format, instead of detecting it: {}", Format::list_readable(Format::qemu_name)))]
        format: Option<Format>,
        /// Accepted without effect: images are never locked.
        #[arg(short = 'U', long)]
        force_share: bool,
        /// A file or block device.
        filename: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputFormat {
    Human,
    Json,
}

/// Runs the command in `words`, whose first word is the name of the program.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    let printed = match QemuImgCli::try_parse_from(words) {
        Ok(QemuImgCli { command }) => image_info(command),
        Err(asked) if !asked.use_stderr() => Ok(asked.to_string()),
        Err(wrong) => {
            let text = wrong.to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(format!("{}: {NOT_QEMU}", first.trim_start_matches("error: ")))
        }
    };
    let ended = printed.and_then(|text| {
        let printed = command_line::print_stdout(text.as_bytes());
        printed.map_err(|error| format!("cannot write to stdout: {error}"))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            command_line::print_error(PROGRAM, sentence);
            ExitCode::FAILURE
        }
    }
}

fn image_info(command: QemuImgCommand) -> Result<String, String> {
    let QemuImgCommand::Info { output, format, filename, force_share: _ } = command;
    let facts = image::inspect_image(&filename, format)
        .map_err(|cause| format!("Could not open '{}': {cause}", filename.display()))?;
    match output {
        OutputFormat::Human => Ok(facts.to_string()),
        OutputFormat::Json => facts.to_json().map_err(|error| error.to_string()),
    }
}

impl ImageSummary {
    fn to_json(&self) -> serde_json::Result<String> {
        let mut bytes = Vec::new();
        let mut serializer =
            Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
        self.serialize(&mut serializer)?;
        bytes.push(b'\n');
        Ok(printable::escape_json(&String::from_utf8_lossy(&bytes)).into_owned())
    }
}

impl fmt::Display for ImageSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names are chosen by users and images, so characters that control the terminal are
        // escaped.
        writeln!(f, "image: {}", printable::escape_text(&self.filename))?;
        writeln!(f, "file format: {}", self.format)?;
        writeln!(
            f,
            "virtual size: {} ({} bytes)",
            HumanSize(self.virtual_size),
            self.virtual_size
        )?;
        writeln!(f, "disk size: {}", HumanSize(self.actual_size))?;
        if let Some(bytes) = self.cluster_size {
            writeln!(f, "cluster_size: {bytes}")?;
        }
        if self.is_dirty {
            writeln!(f, "cleanly shut down: no")?;
        }
        if let Some(name) = &self.backing_filename {
            writeln!(f, "backing file: {}", printable::escape_text(name))?;
        }
        Ok(())
    }
}

/// A number of bytes, formatted as in QEMU: three digits in the largest unit that gives about 1 or
/// more, such as `1.5 GiB`.
struct HumanSize(u64);

impl fmt::Display for HumanSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut number = self.0 as f64;
        let mut units = UNITS.into_iter();
        let mut unit = units.next().unwrap_or_default();
        // Four digits before the decimal point would be too many, so the limit is 1000 and not
        // 1024.
        while number >= 1000.0 {
            let Some(larger) = units.next() else { break };
            (number, unit) = (number / 1024.0, larger);
        }
        let decimals = match number {
            100.0.. => 0,
            10.0.. => 1,
            1.0.. => 2,
            _ => 3,
        };
        let text = format!("{number:.decimals$}");
        let digits = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            &text
        };
        write!(f, "{digits} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.977 KiB"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (100 << 10, "100 KiB"),
            (1010 << 10, "0.986 MiB"),
            ((5 << 20) + 512, "5 MiB"),
            (5_257_216, "5.01 MiB"),
            (20 << 30, "20 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(HumanSize(bytes).to_string(), text, "{bytes}");
        }
    }
}
