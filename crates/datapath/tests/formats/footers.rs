//! Raw disks with a footer behind them: fixed VHD images, and disks that only look like them.

use crate::common::{Memory, fast_folder, file, noise};
use bytes::Bytes;
use datapath::inspect::measure_image;
use datapath::options::{CompressionLayers, PayloadKind, ReadOptions, WriteOptions};
use datapath::transfer::TransferReport;
use datapath::{Error, disk, transfer_image};
use diskimage::Format;
use testkit::images::vhd::{Footer, fixed};
use testkit::tools;

const DISK_BYTES: usize = (1 << 20) + 5 * 1024;

type Options = (PayloadKind, ReadOptions);

fn disk() -> Vec<u8> {
    noise(DISK_BYTES, 5)
}

/// Returns a fixed VHD image like those of Azure.
fn image() -> Vec<u8> {
    fixed(&disk(), &Footer::fixed(DISK_BYTES as u64))
}

/// Imports `source` to a file with room for `available` bytes, and returns the content of the
/// file.
fn import(
    source: &Memory,
    options: &Options,
    available: u64,
) -> Result<(TransferReport, Vec<u8>), Error> {
    let folder = fast_folder();
    let target = disk::DiskOptions { available, ..file(&folder.path().join("disk")) };
    let report = transfer_image(source, options.0, &target, &options.1, &WriteOptions::default())?;
    assert_eq!(measure_image(source, options.0, &options.1).unwrap(), report.virtual_size);
    let disk = std::fs::read(&target.path).unwrap();
    Ok((report, disk))
}

/// Imports by both routes and in chunks of several sizes, to files with room for `available`
/// bytes.
fn import_both(image: &[u8], options: &Options, available: u64) -> Vec<(TransferReport, Vec<u8>)> {
    let image = Bytes::copy_from_slice(image);
    let sizes = [vec![100_000], vec![4096], vec![5000, 1, 511]];
    [true, false]
        .into_iter()
        .flat_map(|ranged| {
            let of_size = |chunks| Memory { ranged, chunks, ..Memory::new(image.clone()) };
            sizes.clone().map(of_size)
        })
        .map(|source| import(&source, options, available).unwrap())
        .collect()
}

fn forced(format: Format) -> Options {
    (PayloadKind::Image(Some(format)), ReadOptions::default())
}

#[test]
fn a_footer_is_not_part_of_the_disk_and_takes_no_space() {
    for options in [Options::default(), forced(Format::Vhd)] {
        for (report, disk) in import_both(&image(), &options, DISK_BYTES as u64) {
            assert!(disk == self::disk());
            assert_eq!(report.virtual_size, DISK_BYTES as u64);
            assert_eq!(report.facts.format, Format::Vhd);
        }
    }
}

/// The footer of a ranged source is read first, so the size is known before the target is touched.
#[test]
fn the_size_of_a_ranged_source_is_known_at_the_start() {
    let [ranged, passing] = [Memory::ranged(image()), Memory::new(image())].map(|source| {
        let (report, _) = import(&source, &Options::default(), u64::MAX).unwrap();
        report.facts.virtual_size
    });
    assert_eq!((ranged, passing), (Some(DISK_BYTES as u64), None));
}

#[test]
fn a_footer_after_an_odd_number_of_sectors_is_recognised_at_the_end() {
    let disk = noise(DISK_BYTES + 512, 6);
    let image = fixed(&disk, &Footer::fixed(disk.len() as u64));
    for (report, found) in import_both(&image, &Options::default(), u64::MAX) {
        assert!(found == disk);
        assert_eq!(report.facts.format, Format::Vhd);
    }
}

/// A footer ends with zeros, and an image that ends within a sector is padded with zeros.
#[test]
fn a_footer_may_lack_its_trailing_zeros() {
    let image = image();
    for (report, disk) in import_both(&image[..image.len() - 100], &Options::default(), u64::MAX) {
        assert!(disk == self::disk());
        assert_eq!(report.facts.format, Format::Vhd);
    }
}

#[test]
fn disks_of_virtual_pc_end_where_their_geometry_ends() {
    let mut footer = Footer::fixed(DISK_BYTES as u64);
    (footer.creator, footer.geometry) = (*b"vpc ", (30, 4, 17));
    let size = 30 * 4 * 17 * 512;
    for (report, disk) in import_both(&fixed(&disk(), &footer), &Options::default(), u64::MAX) {
        assert!(disk == self::disk()[..size]);
        assert_eq!(report.virtual_size, size as u64);
    }
}

#[test]
fn an_image_declared_raw_keeps_its_last_sector() {
    let layers = CompressionLayers::None;
    let bare = (PayloadKind::RAW, ReadOptions { layers, ..ReadOptions::default() });
    for options in [forced(Format::Raw), bare] {
        for (report, disk) in import_both(&image(), &options, u64::MAX) {
            assert!(disk == image());
            assert_eq!(report.facts.format, Format::Raw);
        }
    }
}

/// The end of a disk may be a file that is itself a smaller fixed image, so a footer that does not
/// match the size is kept as part of the disk.
#[test]
fn a_footer_that_does_not_match_is_part_of_the_disk() {
    let other = |change: fn(&mut Footer)| {
        let mut footer = Footer::fixed(DISK_BYTES as u64);
        change(&mut footer);
        fixed(&disk(), &footer)
    };
    let mut damaged = image();
    damaged[DISK_BYTES + 100] ^= 1;
    let cut = image()[512 + 100..].to_vec();
    for image in [
        other(|footer| footer.current_size -= 512),
        other(|footer| footer.current_size += 512),
        other(|footer| footer.disk_type = 3),
        other(|footer| footer.data_offset = 512),
        damaged,
        cut,
        [image(), vec![0; 512]].concat(),
    ] {
        let mut expected = image.clone();
        expected.resize(image.len().next_multiple_of(512), 0);
        for (report, disk) in import_both(&image, &Options::default(), u64::MAX) {
            assert!(disk == expected);
            assert_eq!(report.facts.format, Format::Raw);
        }
    }
}

#[test]
fn an_image_declared_vhd_must_have_a_footer() {
    let mut footer = Footer::fixed(DISK_BYTES as u64);
    footer.current_size -= 1024;
    for (_, disk) in import_both(&fixed(&disk(), &footer), &forced(Format::Vhd), u64::MAX) {
        assert!(disk == self::disk()[..DISK_BYTES - 1024]);
    }
    footer.current_size += 2048;
    for (image, reason) in [
        (fixed(&disk(), &footer), "truncated"),
        (disk(), "no footer where one is expected"),
        (vec![1; 100], "no footer where one is expected"),
    ] {
        for source in [Memory::ranged(image.clone()), Memory::new(image.clone())] {
            let error = import(&source, &forced(Format::Vhd), u64::MAX).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}

#[test]
fn a_dmg_is_refused_by_name() {
    for length in [0, 1000, 4096, 100_000] {
        let mut image = noise(length, 7);
        image.extend(b"koly\0\0\0\x04\0\0\x02\0");
        image.resize(length + 512, 9);
        for source in [Memory::ranged(image.clone()), Memory::new(image.clone())] {
            let error = import(&source, &Options::default(), u64::MAX).unwrap_err();
            assert!(error.to_string().contains("in dmg format"), "{error}");
        }
    }
}

/// Several threads decode the xz blocks and deliver them in any order.
#[test]
#[ignore = "tools: xz"]
fn a_footer_is_found_when_blocks_arrive_in_any_order() {
    for block in ["4096", "65000", "300000"] {
        let args = ["-c", "-T2", "-0", "--block-size", block];
        let source = Memory::new(tools::filter("xz", args, &image()));
        let (report, disk) = import(&source, &Options::default(), DISK_BYTES as u64).unwrap();
        assert!(disk == self::disk(), "blocks of {block}");
        assert_eq!(report.facts.format, Format::Vhd);
    }
}
