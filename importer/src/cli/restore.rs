//! Runs `cdi-importer restore`, which writes the disk of a chain of backups.

use std::fs::File;
use std::path::{Path, PathBuf};

use datapath::restore::{self, ChainFile, ChainSource, DatedFolder};
use fetch::file::FileSource;
use program::limited::read_limited;
use stream::digest::Checksum;
use stream::error::errno_text;

use super::args::{RestoreArgs, RouteOption};
use super::failure::{ImporterCommandError, of_source, usage_error};
use super::import;
use super::open::JobContext;

/// Maximum size of a manifest in bytes, enough for several thousand files.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

pub(super) fn run(arguments: RestoreArgs) -> Result<(), ImporterCommandError> {
    let RestoreArgs { backups, target, manifest, limits, write } = arguments;
    let options = [
        (write.transfer.checksum.is_some(), "--checksum applies to a single image; use --manifest"),
        (write.route != RouteOption::Auto, "--route applies to a single image; remove it"),
        (
            write.scratch.is_some(),
            "--scratch applies to images that are read in one pass; remove it",
        ),
    ];
    if let Some((_, what)) = options.into_iter().find(|(is_given, _)| *is_given) {
        return Err(usage_error(what));
    }
    import::require_raw(&write)?;
    // Read first, so that a wrong list is reported before the job begins.
    let expected = manifest.map(|list| read_manifest(&list, &backups)).transpose()?;
    import::write_disk(
        "restored",
        limits,
        target,
        write,
        move |context, target, reading, writing| {
            let chain = open_chain(&backups, expected, context)?;
            let name = || stream::source::Source::name(&chain);
            restore::restore_chain(&chain, target, reading, writing).map_err(of_source(name))
        },
    )
}

fn open_chain(
    backups: &[PathBuf],
    expected: Option<Vec<(Checksum, String)>>,
    context: &JobContext,
) -> Result<ChainSource, ImporterCommandError> {
    let mut expected = expected.unwrap_or_default().into_iter();
    let mut files = Vec::with_capacity(backups.len());
    for path in backups {
        let mut source = FileSource::open_seekable(path, context.stop.clone())?;
        if let Some((checksum, list)) = expected.next() {
            source = source.with_expected(checksum, list);
        }
        files.push(ChainFile {
            name: file_name(path),
            folder: dated_folder(path),
            source: Box::new(source),
        });
    }
    Ok(ChainSource::new(files)?)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the directory of the backup `path`, if its name states a time.
fn dated_folder(path: &Path) -> Option<DatedFolder> {
    let created = creation_time(path)?;
    let folder = path.parent()?;
    // One directory may be given by several paths.
    let path = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    Some(DatedFolder { path, created })
}

/// Returns the end of the directory's name if it is the time at which KubeVirt made the backup:
/// `VM/BACKUP-2026-11-26_12-00-00/BACKUP-VOLUME.qcow2`.
fn creation_time(path: &Path) -> Option<String> {
    const PATTERN: &str = "-0000-00-00_00-00-00";
    let folder = path.parent()?.file_name()?.to_str()?;
    let stamp = folder.get(folder.len().checked_sub(PATTERN.len())?..)?;
    let fits = |(found, wanted): (u8, u8)| {
        if wanted == b'0' { found.is_ascii_digit() } else { found == wanted }
    };
    let time = stamp.strip_prefix('-')?;
    stamp.bytes().zip(PATTERN.bytes()).all(fits).then(|| time.to_owned())
}

/// Reads the list of digests in `list`. It must name the files `backups` in this order, and no
/// others. Returns the digest of each, with the name of the list.
fn read_manifest(
    list: &Path,
    backups: &[PathBuf],
) -> Result<Vec<(Checksum, String)>, ImporterCommandError> {
    let list_name = list.display();
    let read = File::open(list).and_then(|file| read_limited(file, MAX_MANIFEST_BYTES));
    let bytes = read.map_err(|error| {
        usage_error(format!("cannot read {list_name}: {}; check --manifest", errno_text(&error)))
    })?;
    let listed = parse_manifest(&String::from_utf8_lossy(&bytes)).map_err(|line| {
        usage_error(format!(
            "{list_name}: line {line} is not 'SHA256  NAME'; --manifest expects the output of sha256sum"
        ))
    })?;
    let names: Vec<String> = backups.iter().map(|path| file_name(path)).collect();
    if let Some((index, (listed, given))) = listed
        .iter()
        .map(|(_, name)| name)
        .zip(&names)
        .enumerate()
        .find(|(_, (listed, given))| listed != given)
    {
        let (number, listed) = (index + 1, printable::escape_line(listed, MAX_NAME_CHARS));
        return Err(usage_error(format!(
            "backup {number} is '{given}', but {list_name} lists '{listed}' there; pass all backups in the order of the list"
        )));
    }
    if listed.len() != names.len() {
        return Err(usage_error(format!(
            "{list_name} lists {} backups, but the command line has {}; pass all of them",
            listed.len(),
            names.len()
        )));
    }
    Ok(listed.into_iter().map(|(checksum, _)| (checksum, list_name.to_string())).collect())
}

/// Maximum number of characters of a listed name in a message.
const MAX_NAME_CHARS: usize = 100;

/// Parses the lines of `sha256sum`: a digest, two characters, a name. Returns the digests with the
/// names without directories, or the number of the first line that is wrong.
fn parse_manifest(text: &str) -> Result<Vec<(Checksum, String)>, usize> {
    let parse = |line: &str| {
        let (digest, name) = line.split_once(' ')?;
        let name = name.strip_prefix([' ', '*']).filter(|name| !name.is_empty())?;
        let checksum = format!("sha256:{digest}").parse().ok()?;
        Some((checksum, name.rsplit('/').next().unwrap_or(name).to_owned()))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| parse(line).ok_or(index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_backup_has_its_time() {
        let time = |path: &str| creation_time(Path::new(path));
        assert_eq!(
            time("vm/b-2026-11-26_12-00-00/b-disk.qcow2").as_deref(),
            Some("2026-11-26_12-00-00")
        );
        for other in [
            "b.qcow2",
            "/b.qcow2",
            "vm/b.qcow2",
            "2026-11-26_12-00-00/b",
            "vm/b-2026-11-26 12-00-00/b",
            "vm/éééééééééé/b",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn a_manifest_is_what_sha256sum_writes() {
        let digest = "0".repeat(64);
        let text = format!("{digest}  full.qcow2\n{digest} */backup/a b.qcow2\n\n");
        let listed = parse_manifest(&text).unwrap();
        let names: Vec<&str> = listed.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["full.qcow2", "a b.qcow2"]);
        for wrong in
            ["full.qcow2", "00  full.qcow2", &digest, &format!("{digest}  "), &format!("\\{text}")]
        {
            assert_eq!(
                parse_manifest(&format!("{digest}  a\n{wrong}\n")).unwrap_err(),
                2,
                "{wrong}"
            );
        }
    }
}
