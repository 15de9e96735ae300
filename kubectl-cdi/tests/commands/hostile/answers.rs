//! Answers of an API server that are too large, too many or endless.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::adversary::{Adversary, Reply};
use testkit::bombs;
use testkit::cases::check_all;
use testkit::cgroup::MemoryCgroup;
use testkit::fail::OrFail;
use testkit::wait::PATIENCE;

use crate::hostile::{Cluster, Laptop};

type Page = fn(usize) -> String;

/// Returns a page of a list with these items, and a token for the next page.
fn page(items: &str, next: usize) -> String {
    format!(r#"{{"kind": "List", "metadata": {{"continue": "page-{next}"}}, "items": [{items}]}}"#)
}

fn many(item: &str, count: usize) -> String {
    format!("{}{item}", format!("{item},").repeat(count - 1))
}

/// Returns a laptop whose API server answers every list with numbered pages.
fn laptop_of_pages(pages: Page, pause: Duration) -> Laptop {
    let count = AtomicUsize::new(0);
    let answer = move |_: &_| {
        std::thread::sleep(pause);
        Reply::of(pages(count.fetch_add(1, Ordering::Relaxed)))
    };
    Laptop::with(answer, Adversary::start(|_, _| Reply::silence()))
}

#[test]
#[ignore = "slow: waits 61 s"]
fn endless_lists_are_ended() {
    let cases: [(&str, Page, Duration, &str); 5] = [
        (
            "large objects",
            |n| {
                page(
                    &many(
                        r#"{"metadata": {"name": "x"}, "a": [{"":0},{"":0},{"":0},{"":0}]}"#,
                        40_000,
                    ),
                    n,
                )
            },
            Duration::ZERO,
            "objects that take more than 201326592 bytes of memory",
        ),
        (
            "many objects",
            |n| page(&many("{}", 10_000), n),
            Duration::ZERO,
            "more than 50000 objects",
        ),
        ("empty pages", |n| page("", n), Duration::ZERO, "more than 1000 pages"),
        (
            "the same page",
            |_| page(&many("{}", 10), 7),
            Duration::ZERO,
            "the same page again and again",
        ),
        (
            "slow pages",
            |n| page("{}", n),
            Duration::from_secs(9),
            "a list that does not end within 60 s",
        ),
    ];
    check_all(cases.map(|case| case.0), |name| {
        let case = cases.iter().find(|case| case.0 == *name).or_fail(name);
        let (_, pages, pause, words) = *case;
        let laptop = laptop_of_pages(pages, pause);
        let sentence = format!("answers to list datavolumes.cdi.kubevirt.io with {words}");
        // The product's own limit is a minute.
        let program = laptop.program("status").timeout(2 * PATIENCE);
        program.run().assert_failure(7, &sentence);
    });
}

#[test]
fn a_list_of_many_pages_is_read_to_its_end() {
    let last = 120;
    let laptop = laptop_of_pages(
        |n| {
            let name = json!({"metadata": {"name": format!("disk-{n}")}, "status": {"phase": "Succeeded"}});
            let next = if n % 121 == 120 { String::new() } else { format!("page-{n}") };
            json!({"metadata": {"continue": next}, "items": [name]}).to_string()
        },
        Duration::ZERO,
    );
    let finished = laptop.program("status").run();
    finished.assert_success("a status of many pages");
    let volumes = finished.stdout.matches("dv/disk-").count();
    assert_eq!(volumes, last + 1);
}

#[test]
fn a_single_answer_is_limited() {
    let zeros = |bytes: usize| format!(r#"{{"a":[{}0]}}"#, "0,".repeat(bytes / 2));
    let maps = |bytes: usize| format!(r#"{{"a":[{}0]}}"#, r#"{"":0},"#.repeat(bytes / 7));
    let bodies = [
        ("many bytes", 200, zeros(32 << 20), "more than 8388608 bytes"),
        ("numbers", 200, zeros(7 << 20), "objects that take more than 16777216 bytes of memory"),
        ("maps", 200, maps(7 << 20), "objects that take more than 16777216 bytes of memory"),
        ("a failure", 500, maps(7 << 20), "cannot answer now: "),
        ("a huge failure", 500, zeros(32 << 20), "more than 8388608 bytes"),
    ];
    check_all(bodies.each_ref().map(|body| body.0), |name| {
        let (_, status, body, words) = bodies.iter().find(|body| body.0 == *name).or_fail(name);
        let (status, body) = (*status, body.clone());
        let answer = move |_: &_| Reply::status(status, body.clone());
        let laptop = Laptop::with(answer, Adversary::start(|_, _| Reply::silence()));
        laptop.upload("5s").run().assert_failure(7, words);
    });
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn an_upload_stays_within_its_cgroup() {
    const LIMIT: u64 = 64 << 20;
    let laptop = Laptop::new(Cluster::harmless());
    let group = MemoryCgroup::new(LIMIT);
    let bombs = bombs::all();
    let huge = bombs.iter().find(|bomb| bomb.name == "a map alone").or_fail("a bomb");
    let harmless = std::fs::read(laptop.path("image")).unwrap();
    for (image, sentence) in [
        (huge.bytes.as_slice(), " bytes of memory"),
        (&harmless, "the upload server rejected the image: "),
    ] {
        let mut file = std::fs::File::create(laptop.path("image")).unwrap();
        file.write_all(image).unwrap();
        file.sync_all().unwrap();
        let finished = group.run(laptop.upload("5s")).finished;
        println!("{} bytes at most: {}", group.peak_bytes(), finished.stderr);
        assert_eq!(group.oom_kills(), 0, "killed for memory");
        finished.assert_failure(4, sentence);
    }
}
