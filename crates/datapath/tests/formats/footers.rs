//! Raw disks with a footer behind them: fixed VHD images, and what only looks like one.

use crate::common::{Memory, fast_folder, file, noise};
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

/// As Azure has it.
fn image() -> Vec<u8> {
    fixed(&disk(), &Footer::fixed(DISK_BYTES as u64))
}

/// Imports `source` to a file with room for `available` bytes; returns what it holds then.
fn import(source: &Memory, options: &Options, available: u64) -> Result<(TransferReport, Vec<u8>), Error> {
    let folder = fast_folder();
    let target = disk::DiskOptions { available, ..file(&folder.path().join("disk")) };
    let report = transfer_image(source, options.0, &target, &options.1, &WriteOptions::default())?;
    assert_eq!(measure_image(source, options.0, &options.1).unwrap(), report.virtual_size);
    let disk = std::fs::read(&target.path).unwrap();
    Ok((report, disk))
}

/// By both routes, in chunks of odd sizes, with room for the disk and no byte more.
fn import_both(image: &[u8], options: &Options, available: u64) -> Vec<(TransferReport, Vec<u8>)> {
    let sources = [Memory::ranged(image.to_vec()), Memory::new(image.to_vec())];
    sources
        .into_iter()
        .flat_map(|source| {
            [vec![100_000], vec![4096], vec![5000, 1, 511]].map(|chunks| Memory {
                bytes: source.bytes.clone(),
                chunks,
                ..source
            })
        })
        .map(|source| import(&source, options, available).unwrap())
        .collect()
}

fn forced(format: Format) -> Options {
    (PayloadKind::Image(Some(format)), ReadOptions::default())
}

#[test]
fn a_footer_is_no_part_of_the_disk_and_takes_no_room() {
    for options in [Options::default(), forced(Format::Vhd)] {
        for (report, disk) in import_both(&image(), &options, DISK_BYTES as u64) {
            assert!(disk == self::disk());
            assert_eq!(report.virtual_size, DISK_BYTES as u64);
            assert_eq!(report.facts.format, Format::Vhd);
        }
    }
}

/// Where the source has ranges, the size is known before the target is touched.
#[test]
fn the_size_of_a_ranged_source_is_known_at_once() {
    let [ranged, passing] = [Memory::ranged(image()), Memory::new(image())].map(|source| {
        let (report, _) = import(&source, &Options::default(), u64::MAX).unwrap();
        report.facts.virtual_size
    });
    assert_eq!((ranged, passing), (Some(DISK_BYTES as u64), None));
}

#[test]
fn an_odd_number_of_sectors_is_recognized_when_it_has_come() {
    let disk = noise(DISK_BYTES + 512, 6);
    let image = fixed(&disk, &Footer::fixed(disk.len() as u64));
    for (report, found) in import_both(&image, &Options::default(), u64::MAX) {
        assert!(found == disk);
        assert_eq!(report.facts.format, Format::Vhd);
    }
}

/// A footer ends with zeros, and an image that ends within a sector is read as if zeros followed.
#[test]
fn a_footer_may_lack_its_last_zeros() {
    let image = image();
    for (report, disk) in import_both(&image[..image.len() - 100], &Options::default(), u64::MAX) {
        assert!(disk == self::disk());
        assert_eq!(report.facts.format, Format::Vhd);
    }
}

#[test]
fn virtual_pc_s_disks_end_where_their_geometry_does() {
    let mut footer = Footer::fixed(DISK_BYTES as u64);
    (footer.creator, footer.geometry) = (*b"vpc ", (30, 4, 17));
    let size = 30 * 4 * 17 * 512;
    for (report, disk) in import_both(&fixed(&disk(), &footer), &Options::default(), u64::MAX) {
        assert!(disk == self::disk()[..size]);
        assert_eq!(report.virtual_size, size as u64);
    }
}

#[test]
fn what_is_called_raw_or_is_a_guest_s_keeps_its_last_sector() {
    let layers = CompressionLayers::None;
    let bare = (PayloadKind::RAW, ReadOptions { layers, ..ReadOptions::default() });
    for options in [forced(Format::Raw), bare] {
        for (report, disk) in import_both(&image(), &options, u64::MAX) {
            assert!(disk == image());
            assert_eq!(report.facts.format, Format::Raw);
        }
    }
}

/// A file at the end of a disk may be a smaller fixed image: nothing of the disk is lost.
#[test]
fn a_footer_of_something_else_is_part_of_the_disk() {
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
fn what_is_called_vhd_must_be_one() {
    let mut footer = Footer::fixed(DISK_BYTES as u64);
    footer.current_size -= 1024;
    for (_, disk) in import_both(&fixed(&disk(), &footer), &forced(Format::Vhd), u64::MAX) {
        assert!(disk == self::disk()[..DISK_BYTES - 1024]);
    }
    footer.current_size += 2048;
    for (image, reason) in [
        (fixed(&disk(), &footer), "truncated"),
        (disk(), "no footer where one should be"),
        (vec![1; 100], "no footer where one should be"),
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

/// Blocks of xz are decoded by several threads, and delivered in any order.
#[test]
fn a_footer_is_found_in_a_stream_that_comes_in_any_order() {
    for block in ["4096", "65000", "300000"] {
        let args = ["-c", "-T2", "-0", "--block-size", block];
        let source = Memory::new(tools::filter("xz", args, &image()));
        let (report, disk) = import(&source, &Options::default(), DISK_BYTES as u64).unwrap();
        assert!(disk == self::disk(), "blocks of {block}");
        assert_eq!(report.facts.format, Format::Vhd);
    }
}
