//! Images whose clusters have any number of references and lie in any order. By both routes they
//! must give the right disk.

use proptest::prelude::*;
use proptest::sample::Index;
use testkit::images::qcow2::{Built, CORRUPT, DIRTY, Guest, Qcow2};

use crate::stream::testing::{Array, check_prefix, check_routes, check_survival, one_pass, ranged};
use crate::{Error, Format};

/// log2 of the cluster size.
const SMALL: u32 = 9;
/// log2 of the smallest cluster size with subclusters.
const EXTENDED: u32 = 14;

/// Clusters of which many share the same content.
fn shared(most: usize) -> impl Strategy<Value = Vec<Guest>> {
    let cluster = prop_oneof![
        3 => Just(Guest::Hole),
        1 => (1u8..20).prop_map(Guest::ZeroAllocated),
        4 => (1u8..20).prop_map(Guest::Data),
        2 => (1u8..20).prop_map(Guest::Compressed),
    ];
    prop::collection::vec(cluster, 0..most)
}

/// Shared clusters of which only some parts are stored.
fn parts() -> impl Strategy<Value = Vec<Guest>> {
    let cluster = prop_oneof![
        2 => Just(Guest::Hole),
        1 => (1u8..5).prop_map(Guest::ZeroAllocated),
        1 => (1u8..5).prop_map(Guest::Data),
        1 => (1u8..5).prop_map(Guest::Compressed),
        5 => (1u8..5, 1u32..).prop_map(|(number, stored)| Guest::Part(number, stored)),
    ];
    // Enough for two tables.
    prop::collection::vec(cluster, 0..1100)
}

/// Clusters that are not shared.
fn plain(most: usize) -> impl Strategy<Value = Vec<Guest>> {
    prop::collection::vec(0u8..4, 0..most).prop_map(|kinds| {
        let cluster = |(number, kind)| match kind {
            0 => Guest::Hole,
            1 => Guest::ZeroAllocated(number),
            _ => Guest::Data(number),
        };
        (1..).zip(kinds).map(cluster).collect()
    })
}

fn order() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..320)
}

fn check(built: &Built, chunk: usize) -> Result<(), TestCaseError> {
    check_routes(Format::Qcow2, &built.image, &built.disk, chunk)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn clusters_may_be_shared_in_any_order(
        guest in shared(250),
        refcount_order in 3u32..=6,
        flags in prop::sample::select(vec![0, DIRTY, CORRUPT]),
        order in order(),
        chunk in 1usize..3000,
    ) {
        check(&Qcow2 { refcount_order, flags, order, ..Qcow2::new(SMALL, guest) }.build(), chunk)?;
    }

    #[test]
    fn refcounts_may_have_any_width(
        guest in plain(250),
        refcount_order in 0u32..=6,
        version in 2u32..=3,
        order in order(),
        chunk in 1usize..3000,
    ) {
        let refcount_order = if version == 2 { 4 } else { refcount_order };
        // Zero clusters were introduced with version 3.
        let cluster = |guest| match guest {
            Guest::ZeroAllocated(_) if version == 2 => Guest::Hole,
            guest => guest,
        };
        let guest = guest.into_iter().map(cluster).collect();
        check(&Qcow2 { version, refcount_order, order, ..Qcow2::new(SMALL, guest) }.build(), chunk)?;
    }

    #[test]
    fn snapshots_may_share_clusters_that_the_disk_has_once(
        guest in plain(250),
        differs in any::<Index>(),
        copies in 1usize..3,
        order in order(),
        chunk in 1usize..3000,
    ) {
        let mut snapshot = guest.clone();
        let at = differs.index(guest.len() + 1);
        snapshot.get_mut(at).into_iter().for_each(|guest| *guest = Guest::Data(255));
        let snapshots = vec![snapshot; copies];
        check(&Qcow2 { snapshots, order, ..Qcow2::new(SMALL, guest) }.build(), chunk)?;
    }

    #[test]
    fn clusters_shared_several_times_with_snapshots_are_never_read_wrongly(
        guest in shared(150),
        snapshot in shared(150),
        order in order(),
    ) {
        let built = Qcow2 { snapshots: vec![guest.clone(), snapshot], order, ..Qcow2::new(SMALL, guest) }.build();
        prop_assert!(ranged(Format::Qcow2, &built.image, 700).unwrap().disk == built.disk);
        match one_pass(Format::Qcow2, &built.image, 700) {
            Ok(passed) => prop_assert!(passed.disk == built.disk),
            Err(error) => prop_assert!(matches!(error, Error::Passed { .. }), "{error}"),
        }
    }

    #[test]
    fn every_prefix_fails_unless_only_unmapped_bytes_are_missing(
        guest in shared(250),
        order in order(),
        cut in any::<Index>(),
    ) {
        // The end of a compressed cluster's last sector is not needed.
        let built = Qcow2 { order, ..Qcow2::new(SMALL, guest) }.build();
        check_prefix(Format::Qcow2, &built.image, &built.disk, cut)?;
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_hang(
        guest in shared(250),
        order in order(),
        patches in prop::collection::vec((any::<Index>(), any::<u8>()), 1..20),
    ) {
        let mut image = Qcow2 { order, ..Qcow2::new(SMALL, guest) }.build().image;
        for (at, byte) in patches {
            let at = at.index(image.len());
            image[at] = byte;
        }
        // Larger clusters would allow a larger disk.
        image[23] = 9;
        check_survival(Format::Qcow2, &image);
    }
}

proptest! {
    // 16 MiB each.
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn subclusters_may_be_shared_in_any_order(
        guest in parts(),
        flags in prop::sample::select(vec![0, DIRTY]),
        order in order(),
        chunk in 1000usize..100_000,
    ) {
        check(&Qcow2 { extended_l2: true, flags, order, ..Qcow2::new(EXTENDED, guest) }.build(), chunk)?;
    }
}

fn passed(spec: &Qcow2) -> Array {
    let built = spec.build();
    let sink = one_pass(Format::Qcow2, &built.image, 4096).unwrap();
    assert!(sink.disk == built.disk);
    sink
}

/// Returns more clusters than one table maps.
fn two_tables() -> Vec<Guest> {
    (1..=200).map(Guest::Data).collect()
}

#[test]
fn an_image_with_its_metadata_first_needs_no_parking() {
    for flags in [0, DIRTY] {
        let spec = Qcow2 { flags, ..Qcow2::new(SMALL, two_tables()) };
        // The refcount table and block are not read if they cannot be trusted.
        let most = if flags == DIRTY { 2 } else { 0 };
        assert_eq!(passed(&spec).most_parked, most);
    }
}

#[test]
fn an_image_with_its_l1_table_last_parks_everything() {
    // Parts: refcount table, one refcount block, L1 table, …
    let spec = Qcow2 { order: vec![0, 0, u16::MAX], ..Qcow2::new(SMALL, two_tables()) };
    assert!(passed(&spec).most_parked >= 200);
}

#[test]
fn a_shared_cluster_is_kept_exactly_until_its_last_reference() {
    // One cluster that four tables share. Parts: refcount table and block, L1 table, (no)
    // snapshots, four L2 tables, data.
    let mut guest = vec![Guest::Hole; 4 * 64];
    for (table, place) in guest.chunks_mut(64).zip(0..) {
        table[place] = Guest::Data(1);
        table[20 + place] = Guest::Data(2 + u8::try_from(place).unwrap());
    }
    let spec = Qcow2 {
        // All tables except the first are behind the data that they refer to.
        order: vec![0, 0, 0, 0, 0, 2, 3, 4, 1, 1, 1, 1, 1],
        ..Qcow2::new(SMALL, guest)
    };
    // The shared cluster, and those of the three later tables.
    assert_eq!(passed(&spec).most_parked, 4);
    // Without refcounts, only their flags say that the other clusters have a single reference.
    let spec = Qcow2 { flags: DIRTY, ..spec };
    assert_eq!(passed(&spec).most_parked, 4 + 2);
}

#[test]
fn refcounts_behind_the_data_release_parked_clusters() {
    let guest: Vec<Guest> = (1..=50).map(Guest::Compressed).collect();
    let late = |table: u16, block: u16| Qcow2 {
        order: vec![table, block, 0, 0, 0],
        ..Qcow2::new(SMALL, guest.clone())
    };
    // Nothing says whether a compressed cluster has further references; but here all tables are
    // known at once.
    assert_eq!(passed(&late(1, 1)).most_parked, 0);
    let mut guest = guest.clone();
    guest.resize(65, Guest::Data(9));
    let spec = Qcow2 {
        // The second table comes last, and the refcounts before it.
        order: vec![2, 2, 0, 0, 0, 3],
        ..Qcow2::new(SMALL, guest)
    };
    let sink = passed(&spec);
    assert!(sink.most_parked > 1 && sink.parked.is_empty());
}

#[test]
fn a_refcount_that_is_too_low_is_reported_as_such() {
    let mut guest = vec![Guest::Data(1)];
    guest.resize(65, Guest::Data(1));
    let spec = Qcow2 {
        // The second table is behind the cluster.
        order: vec![0, 0, 0, 0, 0, 2, 1],
        ..Qcow2::new(SMALL, guest)
    };
    assert!(passed(&spec).most_parked >= 1);
    let mut built = spec.build();
    // All refcounts of 16 bits are 1.
    let counts = built.refcounts..built.refcounts + 40;
    built.image[counts].as_chunks_mut().0.iter_mut().for_each(|count| *count = [0, 1]);
    let refused = one_pass(Format::Qcow2, &built.image, 512).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::RefcountContradiction { .. }), "{refused}");
    assert!(ranged(Format::Qcow2, &built.image, 512).unwrap().disk == built.disk);
}
