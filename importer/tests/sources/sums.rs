//! Lists of checksums (`--verify-sums`) as publishers lay them out, served by nginx: good and bad.

use std::path::PathBuf;

use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::nginx::Nginx;
use testkit::process::{Finished, Program};
use testkit::tools;

/// A publisher's server, and the folder that it serves.
pub(crate) struct Publisher {
    folder: TempDir,
    nginx: Nginx,
    pub(crate) content: Vec<u8>,
}

impl Publisher {
    /// Serves `disk.img`, another one as `other.img`, and a compressed one; and by the name
    /// `two/large.qcow2` two images, if they were written: `changed.qcow2` by range, and otherwise
    /// `large.qcow2`.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let content = disk::content(7, 256 << 10);
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).or_fail(name);
        };
        write("disk.img", &content);
        write("other.img", &disk::content(8, 256 << 10));
        write("disk.img.gz", &tools::filter("gzip", ["-c", "-1", "-n"], &content));
        let root = folder.path().display();
        let directives = format!(
            "root {root}; default_type application/octet-stream;
             location = /latest.img {{ return 302 /disk.img; }}
             location = /moved/disk.img {{ return 302 /other.img; }}
             location = /two/large.qcow2 {{
                 if ($http_range) {{ rewrite ^ /changed.qcow2 last; }}
                 rewrite ^ /large.qcow2 last;
             }}
             location = /sums/moved {{ return 302 /latest; }}"
        );
        let nginx = Nginx::start(folder.path(), false, &directives);
        Self { folder, nginx, content }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.nginx.address())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).or_fail(name);
    }

    /// The output of a program of coreutils for files of the publisher.
    pub(crate) fn sums(&self, program: &str, options: &[&str], names: &[&str]) -> String {
        let script = format!("cd \"$0\" && exec {program} \"$@\"");
        let words = ["-c".into(), script, self.folder.path().display().to_string()];
        let more = options.iter().chain(names).map(|word| (*word).to_owned());
        tools::run("sh", words.into_iter().chain(more))
    }

    /// Imports `source` with these options.
    #[track_caller]
    pub(crate) fn import(&self, source: &str, options: &[&str]) -> Finished {
        let target = self.path("target");
        std::fs::remove_file(&target).ok();
        Program::new(crate::BINARY).args(["import", source]).arg(&target).args(options).run()
    }

    #[track_caller]
    pub(crate) fn assert_imports(&self, source: &str, options: &[&str]) -> Finished {
        let finished = self.import(source, options);
        finished.assert_success(source);
        let disk = std::fs::read(self.path("target")).or_fail(source);
        assert!(disk == self.content, "{source}: the disk differs");
        finished
    }

    #[track_caller]
    pub(crate) fn assert_refused(&self, source: &str, options: &[&str], code: i32, text: &str) {
        // Without the lines about progress, which appear after a second.
        let finished = self.import(source, &[options, &["--progress", "none"]].concat());
        finished.assert_failure(code, text);
        assert!(!self.path("target").exists(), "{text}: a target was left behind");
        let errors = ["cdi-importer: ", "error: "];
        let is_error = |line: &&str| errors.iter().any(|start| line.starts_with(start));
        let count = finished.stderr.lines().filter(is_error).count();
        assert_eq!(count, 1, "{}", finished.stderr);
    }
}

#[test]
#[ignore = "server: nginx"]
fn an_image_is_imported_if_it_has_the_listed_checksum() {
    let publisher = Publisher::start();
    let names = &["disk.img", "other.img", "disk.img.gz"][..];
    let odd = "odd\\name.img";
    std::fs::copy(publisher.path("disk.img"), publisher.path(odd)).or_fail("a copy");
    let digest = publisher.sums("sha256sum", &[], &names[..1]);
    let [all, fedora] =
        [publisher.sums("sha512sum", &[], names), publisher.sums("sha256sum", &["--tag"], names)];
    publisher.write("text", &all);
    publisher.write("binary", &publisher.sums("sha256sum", &["--binary"], names));
    publisher.write("bsd", &format!("# disk.img: 262144 bytes\n{fedora}"));
    publisher.write("escaped", &publisher.sums("sha256sum", &[], &[odd]));
    publisher.write("one", &digest);
    publisher.write("latest", &digest.replace("disk.img", "./latest.img"));
    publisher.write("crlf", &format!("{}\r\n", digest.trim_end()));
    let weak = publisher.sums("md5sum", &[], names);
    publisher.write("mixed", &format!("{weak}{all}"));
    let [disk, latest] = ["disk.img", "latest.img"].map(|name| publisher.url(name));
    for (source, list) in [
        (&disk, "text"),
        (&disk, "binary"),
        (&disk, "bsd"),
        (&disk, "one"),
        (&disk, "crlf"),
        (&disk, "mixed"),
        // The sum covers the bytes as they are published.
        (&publisher.url("disk.img.gz"), "text"),
        (&publisher.url("odd%5Cname.img"), "escaped"),
        // The list may have the name that was asked for, or the one behind the redirect.
        (&latest, "one"),
        (&latest, "latest"),
        (&latest, "sums/moved"),
        (&publisher.path("disk.img").display().to_string(), "text"),
    ] {
        let finished = publisher.assert_imports(source, &["--verify-sums", &publisher.url(list)]);
        assert!(finished.stdout.contains(" verified"), "{list}: {}", finished.stdout);
    }
    let file = publisher.path("text").display().to_string();
    publisher.assert_imports(&disk, &["--verify-sums", &file]);
}

#[test]
#[ignore = "server: nginx"]
fn an_image_is_refused_unless_the_list_determines_its_checksum() {
    let publisher = Publisher::start();
    let names = &["disk.img", "other.img"][..];
    let good = publisher.sums("sha256sum", &[], names);
    publisher.write("good", &good);
    let (disk_line, other_line) = good.split_once('\n').or_fail("two lines");
    publisher.write("wrong", &other_line.replace("other.img", "disk.img"));
    publisher.write("two", &format!("{good}{}", other_line.replace("other.img", "x/disk.img")));
    for (list, program) in [("md5", "md5sum"), ("sha1", "sha1sum"), ("sha384", "sha384sum")] {
        publisher.write(list, &publisher.sums(program, &[], names));
    }
    publisher.write("page", "<html>Not found</html>\n");
    publisher.write("large", &"# comment\n".repeat(500_000));
    publisher.write("others", other_line);
    let digest = disk_line.split(' ').next().or_fail("a digest");
    let disk = publisher.url("disk.img");
    for (source, list, code, text) in [
        (&disk, "wrong", 6, ": checksum mismatch: expected sha256:"),
        (&disk, "others", 6, "it does not list disk.img; check --verify-sums and the name"),
        (&disk, "two", 6, "it lists different SHA256 checksums for disk.img; pass the right one"),
        // A redirect to another listed image does not make it this one.
        (
            &publisher.url("moved/disk.img"),
            "good",
            6,
            "it lists different SHA256 checksums for disk.img or other.img",
        ),
        (&disk, "md5", 6, "only with md5, but sha256 or sha512 is required; to accept it"),
        (&disk, "sha1", 6, "only with sha1, but"),
        (&disk, "sha384", 6, "only with sha384, but"),
        (&disk, "page", 6, "it contains no checksums"),
        (&disk, "large", 3, "it has more than 4194304 bytes"),
        (&disk, "none", 3, "404"),
    ] {
        publisher.assert_refused(source, &["--verify-sums", &publisher.url(list)], code, text);
    }
    let (list, checksum) = (publisher.url("good"), format!("sha256:{digest}"));
    let text = "came over plain HTTP, so anybody on the way can have changed it";
    publisher.assert_refused("https://127.0.0.1:1/disk.img", &["--verify-sums", &list], 6, text);
    for (source, options, text) in [
        (disk.as_str(), &["--verify-sums", "none"][..], "check --verify-sums"),
        (&disk, &["--verify-sums", &list, "--checksum", &checksum], "cannot be used with"),
        (
            "docker://127.0.0.1:1/a",
            &["--verify-sums", &list],
            "which docker://127.0.0.1:1/a does not have",
        ),
        ("-", &["--verify-sums", &list], "which - does not have: name a file"),
    ] {
        publisher.assert_refused(source, options, 2, text);
    }
}
