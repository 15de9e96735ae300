//! `serve FILE`: serves a file with ranges, at every path of a loopback port, for demos.

use testkit::origin::{Origin, Script};

#[allow(clippy::print_stdout, reason = "the address is the output of this program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: serve FILE")?;
    let origin = Origin::start(Script::new(std::fs::read(file)?))?;
    println!("listening on {}", origin.url("/"));
    loop {
        std::thread::park();
    }
}
