//! The text descriptor: the kind of the disk, and the files of its extents ("Virtual Disk Format
//! 5.0", section "The Disk Descriptor File"). Files that it names are never opened. It is read to
//! find out whether the whole disk is in this file.

use super::header::VmdkHeader;
use crate::offsets::Host;
use crate::{Error, Format};

/// Offset of the descriptor. QEMU expects it in the second sector, whatever the header says.
const DESCRIPTOR_AT: Host = Host(512);
/// Bytes of the descriptor that QEMU reads: 20 sectors.
const QEMU_DESCRIPTOR_BYTES: usize = 20 * 512;
/// Largest supported descriptor. Typical ones have 10 KiB.
const MAX_DESCRIPTOR_BYTES: u64 = 256 << 10;

/// The relevant lines of a descriptor.
#[derive(Debug, Default, PartialEq, Eq)]
struct VmdkDescriptor {
    /// The values of all `createType` lines.
    types: Vec<String>,
    extents: Vec<DescriptorExtent>,
    /// Name of the parent of a differencing disk; empty if the parent is not named.
    parent: Option<String>,
}

/// An extent line such as `RW 4192256 SPARSE "disk.vmdk"`.
#[derive(Debug, PartialEq, Eq)]
struct DescriptorExtent {
    kind: String,
    file: String,
}

/// The two kinds of disks that consist of a single file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateType {
    MonolithicSparse,
    StreamOptimized,
}

impl CreateType {
    /// Returns the name as the descriptor spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MonolithicSparse => "monolithicSparse",
            Self::StreamOptimized => "streamOptimized",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::MonolithicSparse, Self::StreamOptimized]
            .into_iter()
            .find(|known| known.name().eq_ignore_ascii_case(name))
    }
}

/// Largest number of characters shown of a name.
const MAX_NAME: usize = 255;

/// Returns the text of the descriptor, followed by other bytes that QEMU reads.
pub(super) fn text_of<'h>(header: &VmdkHeader, head: &'h [u8]) -> Result<&'h [u8], Error> {
    let place = &header.descriptor;
    if place.is_empty() {
        return Err(no_descriptor());
    }
    if place.start != DESCRIPTOR_AT || place.end - place.start > MAX_DESCRIPTOR_BYTES {
        return Err(Format::Vmdk.header_error(format!(
            "the descriptor has {} bytes at {:#x} instead of up to {MAX_DESCRIPTOR_BYTES} at {DESCRIPTOR_AT:#x}",
            place.end - place.start,
            place.start
        )));
    }
    let available = Host(head.len() as u64);
    if available < place.end {
        return Err(Format::Vmdk.short_header_error(place.end.0, head));
    }
    // QEMU reads 20 sectors whatever the header says, and finds settings there that a shorter
    // descriptor does not contain.
    let qemu_end = DESCRIPTOR_AT + QEMU_DESCRIPTOR_BYTES as u64;
    let at = |place: Host| usize::try_from(place.0).unwrap_or(usize::MAX);
    let end = place.end.max(qemu_end).min(available);
    match head.get(at(place.start)..at(end)) {
        None | Some([] | [0, ..]) => Err(no_descriptor()),
        Some(text) => Ok(text),
    }
}

fn no_descriptor() -> Error {
    Format::Vmdk.unsupported_error(
        "it has no descriptor, so it is only one of the files of a disk: merge them with `qemu-img convert -O qcow2` and their \
         descriptor file",
    )
}

/// Checks the descriptor inside a sparse extent. The disk has to consist of this one file.
pub(super) fn check_embedded(text: &[u8]) -> Result<CreateType, Error> {
    let descriptor = VmdkDescriptor::parse(text);
    for key in ["CID", "parentCID"] {
        if !has_number(text, key) {
            return Err(Format::Vmdk.header_error(format!("its descriptor has no {key}")));
        }
    }
    if let Some(name) = descriptor.parent {
        return Err(Error::Parent { format: Format::Vmdk, name });
    }
    // A second kind, a second extent or a name in another folder could lead QEMU to bytes that are
    // not in this file, so all of them are checked together.
    let kinds: Option<Vec<_>> =
        descriptor.types.iter().map(|name| CreateType::from_name(name)).collect();
    let elsewhere = descriptor.extents.iter().find(|extent| !extent.may_be_this_file());
    match (kinds.as_deref(), elsewhere, &descriptor.extents[..]) {
        (Some([kind]), None, [_]) => Ok(*kind),
        (Some([]), _, _) => {
            Err(Format::Vmdk.header_error("its descriptor does not say what kind of disk it is"))
        }
        (Some([_]), None, []) => Err(Format::Vmdk.header_error("its descriptor lists no extent")),
        (Some([_, _, ..]), _, _) => {
            Err(Format::Vmdk.header_error("its descriptor states the kind of disk twice"))
        }
        (Some([_]), None, [_, second, ..]) => Err(second.external_file_error("its second extent")),
        (Some([_]), Some(extent), _) => Err(extent.external_file_error(match &*extent.kind {
            "SPARSE" => "an extent with a folder in its name",
            _ => "an extent",
        })),
        (None, _, _) => Err(descriptor.into_error(Format::Vmdk)),
    }
}

/// Returns true if the first `key` in the text and one more character are followed by a
/// hexadecimal number. QEMU refuses to open other images.
fn has_number(text: &[u8], key: &str) -> bool {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = text.get(..QEMU_DESCRIPTOR_BYTES - 1).unwrap_or(text);
    let found = text.windows(key.len()).position(|window| window == key.as_bytes());
    let value = found.and_then(|at| text.get(at + key.len() + 1..)).unwrap_or_default();
    let value = value.trim_ascii_start();
    let digits = value.strip_prefix(b"-").or(value.strip_prefix(b"+")).unwrap_or(value);
    digits.first().is_some_and(u8::is_ascii_hexdigit)
}

/// Creates the error for a file that is only a descriptor and begins with `head`. Its extents are
/// other files.
pub(crate) fn refuse_descriptor(head: &[u8]) -> Error {
    VmdkDescriptor::parse(head).into_error(Format::VmdkDescriptor)
}

impl VmdkDescriptor {
    /// Parses text of any encoding, up to the first NUL.
    fn parse(text: &[u8]) -> Self {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut descriptor = Self::default();
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            descriptor.add_line(&String::from_utf8_lossy(line));
        }
        // QEMU searches the whole text for this key, including comments.
        const HINT: &[u8] = b"parentFileNameHint";
        if descriptor.parent.is_none() && text.windows(HINT.len()).any(|window| window == HINT) {
            descriptor.parent = Some(String::new());
        }
        descriptor
    }

    fn add_line(&mut self, line: &str) {
        let line = line.trim();
        if line.starts_with('#') {
            return;
        }
        if let Some((key, value)) = line.split_once('=') {
            let value = strip_quotes(value);
            match key.trim().to_ascii_lowercase().as_str() {
                "createtype" => self.types.push(value.to_owned()),
                "parentfilenamehint" => self.parent = Some(shorten_name(value)),
                "parentcid" if !value.eq_ignore_ascii_case("ffffffff") => {
                    self.parent.get_or_insert_default();
                }
                _ => {}
            }
        } else if let Some(extent) = DescriptorExtent::parse(line) {
            self.extents.push(extent);
        }
    }

    /// Creates the error that states the kind of the disk and the file that contains its data.
    fn into_error(self, format: Format) -> Error {
        if let Some(name) = self.parent {
            return Error::Parent { format, name };
        }
        let kind = self.types.into_iter().find(|name| CreateType::from_name(name).is_none());
        let kind = kind.map_or_else(|| "VMDK".to_owned(), |name| shorten_name(&name));
        let place = self
            .extents
            .first()
            .map(|extent| format!(" (its first one is \"{}\")", shorten_name(&extent.file)))
            .unwrap_or_default();
        format.unsupported_error(format!(
            "the data of a {kind} disk is in other files{place}, which are never opened: merge it into one file with `qemu-img convert \
             -O qcow2`"
        ))
    }
}

impl DescriptorExtent {
    /// Parses an extent line: access, sectors, kind and name. Returns `None` for any other line.
    fn parse(line: &str) -> Option<Self> {
        let (access, rest) = line.split_once(char::is_whitespace)?;
        if !["RW", "RDONLY", "NOACCESS"].contains(&access) {
            return None;
        }
        let (_sectors, rest) = rest.trim_start().split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        let (kind, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        Some(Self { kind: kind.to_owned(), file: parse_quoted(name).to_owned() })
    }

    /// Returns true if the extent may be this file. The file may have been renamed, so a different
    /// name proves nothing. A file in another folder is not this file.
    fn may_be_this_file(&self) -> bool {
        self.kind == "SPARSE" && !self.file.contains(['/', '\\'])
    }

    fn external_file_error(&self, what: &'static str) -> Error {
        Error::ExternalFile { what, name: shorten_name(&self.file) }
    }
}

/// Returns the text between the quotes at the beginning of `text`. An offset may follow them.
fn parse_quoted(text: &str) -> &str {
    match text.trim().strip_prefix('"') {
        Some(rest) => rest.split_once('"').map_or(rest, |(name, _)| name),
        None => text.trim(),
    }
}

/// Returns a value without its quotes, if it has any.
fn strip_quotes(text: &str) -> &str {
    text.trim().trim_matches('"').trim()
}

/// Escapes and shortens a name for messages.
fn shorten_name(text: &str) -> String {
    printable::escape_prefix(text.as_bytes(), MAX_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(lines: &str) -> String {
        format!(
            "# Disk DescriptorFile\nversion=1\nCID=fffffffe\n{lines}\n# The Disk Data Base\nddb.adapterType = \"ide\"\n"
        )
    }

    const ONE_FILE: &str = "parentCID=ffffffff\ncreateType=\"streamOptimized\"\nRDONLY 4192256 SPARSE \"call-me-stream.vmdk\"";

    #[test]
    fn a_disk_in_one_file_is_accepted_in_every_spelling() {
        let usual = descriptor(ONE_FILE);
        for text in [
            usual.clone(),
            usual.replace('\n', "\r\n"),
            usual.replace("createType=", " createType  = "),
            usual.replace("streamOptimized", "STREAMOPTIMIZED"),
            usual.replace("call-me-stream", "caf\u{e9}"),
            format!("{usual}\0RW 1 FLAT \"/etc/passwd\" 0"),
        ] {
            assert_eq!(check_embedded(text.as_bytes()), Ok(CreateType::StreamOptimized), "{text}");
        }
        let windows_1252 = [usual.as_bytes(), b"ddb.comment = \"caf\xe9\"\n"].concat();
        assert_eq!(check_embedded(&windows_1252), Ok(CreateType::StreamOptimized));
    }

    #[test]
    fn descriptors_without_the_ids_that_qemu_needs_are_refused() {
        let usual = descriptor(ONE_FILE);
        for (text, is_taken) in [
            (usual.replace("CID=fffffffe", "CID= +0"), true),
            (usual.replace("CID=fffffffe", "CID=g"), false),
            (usual.replace("CID=fffffffe", ""), true),
            (usual.replace("CID", "CIE"), false),
            (usual.replace("parentCID", "parentCIE"), false),
        ] {
            assert_eq!(check_embedded(text.as_bytes()).is_ok(), is_taken, "{text}");
        }
    }

    #[test]
    fn extents_in_other_files_are_refused_with_their_names() {
        let usual = descriptor(ONE_FILE);
        for (text, name) in [
            (usual.replace("call-me", "/etc/passwd"), "/etc/passwd-stream.vmdk"),
            (usual.replace("call-me", "..\\other"), "..\\other-stream.vmdk"),
            (usual.replace("SPARSE", "FLAT"), "call-me-stream.vmdk"),
            (usual.replace("SPARSE", "VMFS"), "call-me-stream.vmdk"),
            (format!("{usual}RW 5 SPARSE \"second.vmdk\"\n"), "second.vmdk"),
            (format!("{usual}RW 5 FLAT \"/dev/sda\" 0\n"), "/dev/sda"),
            (usual.replace("\"call-me-stream.vmdk\"", "\"json:{}/\" 0"), "json:{}/"),
        ] {
            let refused = check_embedded(text.as_bytes()).unwrap_err();
            let Error::ExternalFile { name: named, .. } = &refused else { panic!("{refused}") };
            assert_eq!(named, name);
        }
    }

    #[test]
    fn other_kinds_of_disks_are_refused_by_name() {
        for kind in ["twoGbMaxExtentSparse", "monolithicFlat", "vmfs", "seSparse", "custom"] {
            let text = descriptor(ONE_FILE).replace("streamOptimized", kind);
            for refused in
                [check_embedded(text.as_bytes()).unwrap_err(), refuse_descriptor(text.as_bytes())]
            {
                let said = refused.to_string();
                assert!(said.contains(kind) && said.contains("call-me-stream.vmdk"), "{said}");
            }
        }
    }

    #[test]
    fn parents_are_refused_wherever_they_are_named() {
        let usual = descriptor(ONE_FILE);
        for (text, name) in [
            (usual.replace("ffffffff", "5189ccb5"), ""),
            (format!("{usual}parentFileNameHint=\"/etc/passwd\"\n"), "/etc/passwd"),
            (format!("{usual}# parentFileNameHint=\"base.vmdk\"\n"), ""),
        ] {
            let name = name.to_owned();
            let format = Format::Vmdk;
            assert_eq!(check_embedded(text.as_bytes()), Err(Error::Parent { format, name }));
        }
    }

    #[test]
    fn incomplete_and_ambiguous_descriptors_are_refused() {
        let twice = descriptor(ONE_FILE) + "createType=\"monolithicSparse\"\n";
        for text in ["", "garbage", "createType=\"streamOptimized\"", "RW 1 SPARSE \"a\"", &twice] {
            assert!(matches!(check_embedded(text.as_bytes()), Err(Error::Header { .. })), "{text}");
        }
    }

    #[test]
    fn names_in_refusals_are_escaped_and_shortened() {
        let text = format!("createType=\"custom\"\nRW 1 FLAT \"a\u{1b}[2J{}\"", "x".repeat(5000));
        let said = refuse_descriptor(text.as_bytes()).to_string();
        assert!(said.contains(r"a\u{1b}[2Jx") && said.len() < 1000, "{said}");
    }
}
