//! Raw disks with a footer behind them: fixed VHD images, and disks that only look like them.

use bytes::Bytes;
use datapath::options::WriteOptions;
use datapath::transfer::TransferReport;
use datapath::{disk, transfer_image};
use diskimage::Format;
use inspect::measure_image;
use stream::Error;
use stream::options::{CompressionLayers, PayloadKind, ReadOptions};
use testkit::images::vhd::{Footer, fixed};
use testkit::tools;

use crate::common::{Memory, fast_folder, file, noise};

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

/// A footer that matches the size is not part of the disk, and takes no space. The end of a disk
/// may be a file that is itself a smaller fixed image, so any other footer is kept.
#[test]
fn only_a_matching_footer_is_removed() {
    let other = |change: &dyn Fn(&mut Footer)| {
        let mut footer = Footer::fixed(DISK_BYTES as u64);
        change(&mut footer);
        fixed(&disk(), &footer)
    };
    let odd = noise(DISK_BYTES + 512, 6);
    let mut damaged = image();
    damaged[DISK_BYTES + 100] ^= 1;
    let layers = CompressionLayers::None;
    let bare = (PayloadKind::RAW, ReadOptions { layers, ..ReadOptions::default() });
    // Disks of Virtual PC end where their geometry ends.
    let virtual_pc = other(&|footer| (footer.creator, footer.geometry) = (*b"vpc ", (30, 4, 17)));
    for (image, options, removed_from) in [
        (image(), Options::default(), Some(DISK_BYTES)),
        (image(), forced(Format::Vhd), Some(DISK_BYTES)),
        (fixed(&odd, &Footer::fixed(odd.len() as u64)), Options::default(), Some(odd.len())),
        // A footer ends with zeros, and an image that ends within a sector is padded with zeros.
        (image()[..DISK_BYTES + 412].to_vec(), Options::default(), Some(DISK_BYTES)),
        (virtual_pc, Options::default(), Some(30 * 4 * 17 * 512)),
        (image(), forced(Format::Raw), None),
        (image(), bare, None),
        (other(&|footer| footer.current_size -= 512), Options::default(), None),
        (other(&|footer| footer.current_size += 512), Options::default(), None),
        (other(&|footer| footer.disk_type = 3), Options::default(), None),
        (other(&|footer| footer.data_offset = 512), Options::default(), None),
        (damaged, Options::default(), None),
        (image()[612..].to_vec(), Options::default(), None),
        ([image(), vec![0; 512]].concat(), Options::default(), None),
    ] {
        let mut expected = image.clone();
        expected.resize(removed_from.unwrap_or(image.len().next_multiple_of(512)), 0);
        // If only its end shows that it is a footer, it was written.
        let is_whole = removed_from == Some(DISK_BYTES) && image.len() == DISK_BYTES + 512;
        let available = if is_whole { DISK_BYTES as u64 } else { u64::MAX };
        let format = if removed_from.is_some() { Format::Vhd } else { Format::Raw };
        for (report, disk) in import_both(&image, &options, available) {
            assert!(disk == expected, "{format} of {} bytes", image.len());
            assert_eq!(report.virtual_size, expected.len() as u64);
            assert_eq!(report.facts.format, format);
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
