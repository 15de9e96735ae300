//! Runs the fuzz targets on their seeds, without a fuzzer.

use std::path::Path;

use cdi_fuzz::targets::TARGETS;
use cdi_fuzz::transfers::FOLDER;

#[test]
fn every_seed_passes() {
    for (name, target) in TARGETS {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let seeds: Vec<_> = seeds.read_dir().unwrap().map(|seed| seed.unwrap().path()).collect();
        assert!(seeds.len() > 1, "{name} has {} seeds", seeds.len());
        for seed in seeds {
            let bytes = std::fs::read(&seed).unwrap();
            let run = || target(&bytes);
            assert!(std::panic::catch_unwind(run).is_ok(), "{}", seed.display());
        }
    }
    std::fs::remove_dir_all(&*FOLDER).unwrap();
}
