//! What all command lines share: looks, what they can print about themselves, and how values are written.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Command, Parser};

/// The colours of help.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// What `arguments` (without the name of `program`) ask for; otherwise the exit code, and everything is said.
pub fn parse<P: Parser>(program: &str, arguments: &[OsString]) -> Result<P, ExitCode> {
    let words = [OsString::from(program)]
        .into_iter()
        .chain(arguments.iter().cloned());
    P::try_parse_from(words).map_err(|error| {
        // Help asked for goes to stdout with code 0, everything else to stderr with code 2.
        error.print().ok();
        ExitCode::from(if error.use_stderr() { 2 } else { 0 })
    })
}

/// How much a server says (klog's `-v`) with `--quiet`, or with so many `-v`.
pub fn server_verbosity(quiet: bool, verbose: u8) -> u8 {
    match (quiet, verbose) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, 1) => 3,
        (false, _) => 5,
    }
}

/// The manual in roff: a page for the program, followed by one for each subcommand.
pub fn manual(program: Command, page: &mut dyn Write) -> io::Result<()> {
    let mut program = program;
    program.build();
    clap_mangen::Man::new(program.clone()).render(page)?;
    for subcommand in program
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        clap_mangen::Man::new(subcommand.clone()).render(page)?;
    }
    Ok(())
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes what `program` says of something that is done already. That it cannot be said is no failure: it goes to stderr.
pub fn print_summary(program: &str, summary: &str) {
    if let Err(error) = print(summary.as_bytes()) {
        // The exit code still says it when stderr is closed as well.
        writeln!(
            io::stderr(),
            "{program}: done, but stdout cannot be written: {error}"
        )
        .ok();
    }
}

/// Writes why `program` fails to standard error. Nobody is left to tell when that is closed; the exit code still says it.
pub fn complain(program: &str, sentence: impl Display) {
    let sentence = sentence.to_string();
    writeln!(io::stderr(), "{program}: {}", printable::text(&sentence)).ok();
}

/// An address to listen on, `ADDRESS:PORT`; no address means all.
pub fn listen(text: &str) -> Result<(String, u16), String> {
    let (address, port) = text.rsplit_once(':').ok_or("use ADDRESS:PORT")?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Ok((address.to_owned(), port))
}

/// A time of at least a second: a whole number with `s`, `m` or `h`, or without for seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match text.get(digits.len()..) {
        Some("" | "s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        _ => return Err("use a whole number with s, m or h".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "use a whole number with s, m or h".to_owned())?;
    match number.checked_mul(seconds) {
        Some(0) => Err("at least one second is needed".to_owned()),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("that is too long".to_owned()),
    }
}

/// Bytes a second: a whole number, with the suffix K, M or G for powers of 1024.
pub fn byte_rate(text: &str) -> Result<NonZeroU64, String> {
    let shift = match text.chars().last() {
        Some('K' | 'k') => 10,
        Some('M' | 'm') => 20,
        Some('G' | 'g') => 30,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        text.get(..text.len() - 1).unwrap_or_default()
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "use a whole number with an optional K, M or G")?;
    let bytes = number.checked_mul(1 << shift).ok_or("the rate is too large")?;
    NonZeroU64::new(bytes).ok_or_else(|| "the rate must not be zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(listen("[::1]:0").unwrap(), ("::1".to_owned(), 0));
        assert_eq!(listen(":8443").unwrap(), (String::new(), 8443));
        listen("localhost").unwrap_err();
        listen("localhost:x").unwrap_err();
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(duration(text).unwrap().as_secs(), seconds);
        }
        for text in ["", "m", "0", "1d", "-1s", "18446744073709551615h"] {
            duration(text).unwrap_err();
        }
    }

    #[test]
    fn rates_take_binary_suffixes() {
        for (text, bytes) in [("1", 1), ("512K", 512 << 10), ("3m", 3 << 20), ("2G", 2 << 30)] {
            assert_eq!(byte_rate(text).unwrap().get(), bytes, "{text}");
        }
        for text in [
            "",
            "K",
            "0",
            "0M",
            "-1",
            "1.5M",
            "1T",
            "é",
            "99999999999999999999",
            "18446744073709551615G",
        ] {
            assert!(byte_rate(text).is_err(), "{text}");
        }
    }
}
