//! The steps that a commit has done so far, so that they can be undone.

use super::directory::Attributes;
use crate::error::ArchiveErrorKind;
use crate::memory::Grant;

/// Memory of a journal: about half a million names that were moved one by one, which is only done in directories that
/// both the archive and the target have.
const MAX_BYTES: u64 = 16 << 20;

/// One step of a commit, to be undone if a later one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'j> {
    /// The steps behind this one were done in this directory.
    In(&'j [u8]),
    /// The name came to the target, where nothing was.
    Moved(&'j [u8]),
    /// The name came to the target, and what was there is kept under the number of this step among its kind.
    Replaced(&'j [u8]),
}

const IN: u8 = b'/';
const MOVED: u8 = b'+';
const REPLACED: u8 = b'~';

/// The steps in order, each a byte and a name with a NUL behind it.
#[derive(Default)]
pub(super) struct Journal {
    steps: Vec<u8>,
    directory: Vec<u8>,
    /// Directories that were there before, and what they were like.
    pub(super) attributes: Vec<(Vec<u8>, Attributes)>,
    /// Bytes in `attributes`.
    attribute_bytes: usize,
    memory: Grant,
}

impl Journal {
    /// Takes down a step in `directory`, before it is done.
    pub(super) fn add(
        &mut self,
        directory: &[u8],
        name: &[u8],
        replaces: bool,
    ) -> Result<(), ArchiveErrorKind> {
        if self.directory != directory {
            self.push(IN, directory)?;
            self.directory = directory.to_vec();
        }
        self.push(if replaces { REPLACED } else { MOVED }, name)
    }

    /// Takes back the last step, which was `name`.
    pub(super) fn take_back(&mut self, name: &[u8]) {
        self.steps
            .truncate(self.steps.len().saturating_sub(name.len() + 2));
    }

    /// Takes down what `directory` was like.
    pub(super) fn add_attributes(
        &mut self,
        directory: &[u8],
        attributes: Attributes,
    ) -> Result<(), ArchiveErrorKind> {
        self.attribute_bytes += directory.len() + size_of::<(Vec<u8>, Attributes)>();
        self.count(0)?;
        self.attributes.push((directory.to_vec(), attributes));
        Ok(())
    }

    fn push(&mut self, kind: u8, name: &[u8]) -> Result<(), ArchiveErrorKind> {
        self.count(name.len() + 2)?;
        self.steps.push(kind);
        self.steps.extend_from_slice(name);
        self.steps.push(0);
        Ok(())
    }

    fn count(&mut self, more: usize) -> Result<(), ArchiveErrorKind> {
        let needed = (self.steps.len() + self.attribute_bytes + more) as u64;
        let what = "a list in bytes of what replaces or joins what is there";
        ArchiveErrorKind::check_limit(what, needed, MAX_BYTES)?;
        // Lists grow to twice their length.
        Ok(self.memory.grow_to(2 * needed)?)
    }

    /// The steps in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        // Names have no NUL.
        let steps = self.steps.split(|byte| *byte == 0);
        steps.filter_map(|step| match step.split_first()? {
            (&IN, directory) => Some(Step::In(directory)),
            (&MOVED, name) => Some(Step::Moved(name)),
            (&REPLACED, name) => Some(Step::Replaced(name)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back_with_their_directories() {
        let mut journal = Journal::default();
        journal.add(b"", b"a", false).unwrap();
        journal.add(b"", b"b", true).unwrap();
        journal.add(b"d/e", b"+c", false).unwrap();
        journal.add(b"d/e", b"failed", true).unwrap();
        journal.take_back(b"failed");
        journal.add(b"", b"/", false).unwrap();
        let steps: Vec<_> = journal.steps().collect();
        assert_eq!(
            steps,
            [
                Step::Moved(b"a"),
                Step::Replaced(b"b"),
                Step::In(b"d/e"),
                Step::Moved(b"+c"),
                Step::In(b""),
                Step::Moved(b"/"),
            ]
        );
    }

    #[test]
    fn its_memory_has_a_limit() {
        let mut journal = Journal::default();
        let name = vec![b'x'; 254];
        for _ in 0..MAX_BYTES / 256 {
            journal.add(b"", &name, false).unwrap();
        }
        assert!(journal.add(b"", b"", false).is_err());
        assert!(
            journal
                .add_attributes(b"", Attributes { mode: 0, mtime: None })
                .is_err()
        );
    }
}
