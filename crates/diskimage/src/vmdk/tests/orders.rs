//! Grains and tables in any order must give the disk.

use proptest::prelude::*;
use testkit::images::vmdk::{ExportLayout, Grain, Tables, Vmdk};

use crate::Format;
use crate::stream::testing::{check_prefix, check_survival, one_pass, ranged};

fn grains() -> impl Strategy<Value = Vec<Grain>> {
    let grain = prop_oneof![
        2 => Just(Grain::Hole),
        1 => Just(Grain::Zeroed),
        4 => any::<u8>().prop_map(Grain::Data),
    ];
    prop::collection::vec(grain, 1..60)
}

pub(super) fn images() -> impl Strategy<Value = Vmdk> {
    let exported = (0u8..40, any::<[bool; 3]>()).prop_map(|(padding, flags)| {
        let [is_marked_once, is_redundant, is_redundant_at_end] = flags;
        Tables::Exported(ExportLayout {
            padding,
            is_marked_once,
            is_redundant,
            is_redundant_at_end,
        })
    });
    let tables = prop_oneof![
        1 => Just(Tables::First),
        1 => Just(Tables::Last),
        1 => Just(Tables::Footer),
        3 => exported,
    ];
    let order = prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u16>(), 0..60)];
    (grains(), tables, any::<bool>(), order, 0u64..8).prop_map(
        |(grains, tables, compressed, order, cut_sectors)| Vmdk {
            cut_sectors,
            order,
            ..Vmdk::small(tables, compressed || matches!(tables, Tables::Exported(_)), grains)
        },
    )
}

/// Returns true if only the last sectors of the image say what it is, so that one pass cannot read
/// it.
fn needs_ranges(vmdk: &Vmdk) -> bool {
    vmdk.tables == Tables::Footer && !vmdk.compressed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_order_on_any_route_gives_the_disk(vmdk in images(), chunk in 1usize..3000) {
        let (image, disk) = (vmdk.build(), vmdk.disk());
        prop_assert!(ranged(Format::Vmdk, &image, chunk).unwrap().disk == disk);
        match one_pass(Format::Vmdk, &image, chunk) {
            Ok(passed) => {
                prop_assert!(passed.disk == disk && passed.parked.is_empty());
                prop_assert!(passed.most_parked < 20 || vmdk.tables == Tables::Last);
            }
            Err(refused) => {
                prop_assert!(needs_ranges(&vmdk), "{}", refused);
                prop_assert!(refused.to_string().contains("ranges"));
            }
        }
    }

    /// With one marker for all tables, such tables look like other markers.
    #[test]
    fn tables_of_zeroed_grains_are_no_markers(
        grains in prop::collection::vec(prop_oneof![6 => Just(Grain::Hole), 2 => Just(Grain::Zeroed), 1 => Just(Grain::Data(1))], 1..60),
    ) {
        let tables = Tables::Exported(ExportLayout::XEN_ORCHESTRA);
        let vmdk = Vmdk::small(tables, true, grains);
        prop_assert!(one_pass(Format::Vmdk, &vmdk.build(), 1000).unwrap().disk == vmdk.disk());
    }

    #[test]
    fn every_prefix_fails_unless_only_unmapped_bytes_are_missing(
        vmdk in images(),
        cut in any::<prop::sample::Index>(),
    ) {
        let image = vmdk.build();
        check_prefix(Format::Vmdk, &image, &vmdk.disk(), cut)?;
        if matches!(vmdk.tables, Tables::Footer | Tables::Exported(_)) {
            let cut = cut.index(image.len());
            prop_assert!(one_pass(Format::Vmdk, &image[..cut], 1000).is_err());
            prop_assert!(ranged(Format::Vmdk, &image[..cut], 1000).is_err());
        }
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_hang(
        vmdk in images(),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut image = vmdk.build();
        for (at, byte) in patches {
            let at = at.index(image.len());
            image[at] = byte;
        }
        check_survival(Format::Vmdk, &image);
    }
}
