//! Deltas lock out other writers while they are applied, and never remove their disk.

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::Running;

use crate::ownership::gate::{self, Gate};
use crate::ownership::importer;
use crate::ownership::place::Place;

const IN_USE: &str = "another import or upload is writing to it";

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn one_writer_at_a_time_changes_a_disk() {
    let place = Place::with_file();
    let spec = Spec {
        compression: Compression::Plain,
        virtual_size: 8 << 20,
        ..Spec::new(Content::Sparse)
    };
    let delta = spec.build_delta(8 << 20, place.root(), "delta");
    let object = std::fs::read(&delta.qcow2).or_fail("the delta");
    let (first, last) = object.split_at(object.len() - 4096);
    let apply = |target| -> (Running, Gate) {
        let (gate, feed) = gate::pipe(first.to_vec());
        let program =
            importer(["apply", "-vv", "--base"]).arg(delta.base_name()).arg("-").arg(target);
        (program.stdin(feed).start(), gate)
    };
    std::fs::copy(&delta.base, place.target()).or_fail("the base");
    // The lock is on the disk, not on one of its names.
    let other_name = place.root().join("other name");
    std::fs::hard_link(place.target(), &other_name).or_fail("another name");
    for signal in [Some(Signal::TERM), Some(Signal::KILL), None] {
        let (applying, gate) = apply(place.target());
        applying.wait_for_line("took the target");
        let (second, _gate) = apply(other_name.clone());
        second.wait().assert_failure(7, IN_USE);
        for name in [place.target(), other_name.clone()] {
            let import =
                importer(["import", "--progress=none", "--force"]).arg(&delta.base).arg(name);
            import.run().assert_failure(7, IN_USE);
        }
        match signal {
            Some(signal) => {
                applying.signal(signal);
                assert_eq!(applying.wait().code(), 128 + signal.as_raw());
            }
            None => {
                gate.open(last);
                applying.wait().assert_success("apply");
            }
        }
    }
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "applied");
}
