//! Is an image consistent? Whatever its tables refer to, compared with each other and with its refcounts.

use crate::layout::Layout;
use crate::stream::{MAP_BYTES, name};
use crate::wants::{Role, Want};
use crate::{Error, MapBuilder};

/// Sentences that are kept; more are only counted.
const MAX_SENTENCES: usize = 20;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Bytes of the image that hold guest data.
    pub data_bytes: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// What the guest could read wrongly because of it, or what a writer would destroy.
    pub errors: Vec<String>,
    /// How many errors there are.
    pub error_count: u64,
    /// Clusters that are counted as used, and that nothing uses: lost space, no lost data.
    pub leaked_clusters: u64,
}

impl Findings {
    fn error(&mut self, sentence: impl FnOnce() -> String) {
        self.error_count += 1;
        if self.errors.len() < MAX_SENTENCES {
            self.errors.push(sentence());
        }
    }
}

impl MapBuilder {
    /// Compares everything that the tables of the image refer to; they were all [`add`](Self::add)ed to a builder that is
    /// [for checking](Self::for_check).
    pub fn check(mut self) -> Result<Findings, Error> {
        let mut references = std::mem::take(&mut self.references);
        references.sort_unstable();
        let mut findings = Findings::default();
        for want in &references {
            match want.role {
                Role::Table(_) => findings.table_bytes += u64::from(want.length),
                Role::Data | Role::SoleData | Role::PartOfData | Role::Compressed => {
                    findings.data_bytes += u64::from(want.length)
                }
                Role::Ignored => {}
            }
        }
        check_overlaps(&*self.layout, &references, &mut findings);
        if self.layout.counts_references()
            && let Some(unit) = self.layout.parking_unit()
        {
            check_refcounts(&*self.layout, unit, self.image_length, &references, &mut findings)?;
        }
        Ok(findings)
    }
}

/// Two things in one place: at most one of them is right.
fn check_overlaps(layout: &dyn Layout, references: &[Want], findings: &mut Findings) {
    let mut widest: Option<&Want> = None;
    for want in references {
        if let Some(other) = widest
            && want.host < other.end()
            // The length of a compressed cluster is rounded up to sectors, and the next one begins in its last.
            && (want.role, other.role) != (Role::Compressed, Role::Compressed)
        {
            findings.error(|| {
                format!(
                    "{} at {:#x} overlaps {} at {:#x} ({} bytes)",
                    name(layout, want),
                    want.host,
                    name(layout, other),
                    other.host,
                    other.length
                )
            });
        }
        if widest.is_none_or(|other| want.end() > other.end()) {
            widest = Some(want);
        }
    }
}

/// Every cluster that is in use must be counted as often; what is counted and not in use is lost.
fn check_refcounts(
    layout: &dyn Layout,
    unit: u64,
    image_length: u64,
    references: &[Want],
    findings: &mut Findings,
) -> Result<(), Error> {
    let clusters = image_length.div_ceil(unit);
    if clusters > MAP_BYTES / 2 {
        return Err(Error::MapTooLarge { limit: MAP_BYTES });
    }
    let mut uses = vec![0u16; usize::try_from(clusters).unwrap_or(0)];
    // The header has the first one.
    let header = [(0, 1)].into_iter();
    let spans = references
        .iter()
        .map(|want| (want.host / unit, want.end().div_ceil(unit)));
    for (first, end) in header.chain(spans) {
        for cluster in first..end.min(clusters) {
            if let Some(uses) = usize::try_from(cluster)
                .ok()
                .and_then(|index| uses.get_mut(index))
            {
                *uses = uses.saturating_add(1);
            }
        }
    }
    for (index, uses) in uses.into_iter().enumerate() {
        let host = index as u64 * unit;
        match layout.refcount(host) {
            Some(refcount) if refcount < u64::from(uses) => findings.error(|| {
                format!("the cluster at {host:#x} has {uses} references and a refcount of {refcount}")
            }),
            // Snapshots and bitmaps refer to clusters from tables that are not read here.
            Some(refcount) if refcount > 0 && uses == 0 && !layout.has_other_users() => {
                findings.leaked_clusters += 1;
            }
            _ => {}
        }
    }
    Ok(())
}
