//! Says what `cargo test` leaves out. In this package, because cargo tests it last.

#![expect(clippy::print_stdout, reason = "it is for people")]

fn main() {
    println!(
        "\nLeft out: tests that need other programs or root (ci/test runs them, in 15 minutes), \
         servers, time or an idle machine (ci/test full, in 45).\n"
    );
}
