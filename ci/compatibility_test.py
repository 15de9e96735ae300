#!/usr/bin/env python3
"""Tests that ci/compatibility finds each mistake in the table and reports nothing else."""

import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
# ci/compatibility has no suffix, so `import` would not find it.
loader = SourceFileLoader("compatibility", str(Path(__file__).with_name("compatibility")))
compatibility = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(compatibility)

LISTED = {("import_test.go", "61"), ("import_test.go", "92"), ("import_test.go", "664-763")}
PASSED = {"importer/pod::failure::a", "importer/pod::failure::b"}

TABLE = """file	test	asserts	our tests	state	reason
import_test.go	61 (2329) raw	a message	importer/pod::failure::a importer/pod::failure::b	same	
import_test.go	61 (2329) qcow2	a message	importer/pod::failure::a	part	no raw disk
import_test.go	92	no pod is made		control plane	
import_test.go	664-763	no pod is made		control plane	
"""


class Table(unittest.TestCase):
    def complaints(self, old, new):
        self.assertIn(old, TABLE)
        return compatibility.complaints(TABLE.replace(old, new), LISTED, PASSED)

    def test_a_right_table_is_right(self):
        self.assertEqual(self.complaints("", ""), [])

    def test_each_mistake_is_seen(self):
        for old, new, expected in [
            ("failure::b", "failure::c", "line 2 names importer/pod::failure::c, which did not run or did not pass"),
            ("importer/pod::failure::b", "pod::b", "line 2 names 'pod::b', which is not PACKAGE/PROGRAM::TEST"),
            ("b\tsame", "b\tdone", "line 2 has the unknown state 'done'"),
            ("no raw disk", "", "line 3 needs a reason for the state 'part'"),
            ("b\tsame\t", "b\tsame\tnearly", "line 2 has a needless reason for the state 'same'"),
            ("importer/pod::failure::a\tpart", "\tpart", "line 3 names no test"),
            ("\tno raw disk", "", "line 3 has 5 cells instead of 6"),
            ("61 (2329) qcow2", "61 (2329) raw", "line 3 is about the same test as another row"),
            ("664-763", "664-764", "import_test.go:664-763 is missing"),
            ("664-763", "664-764", "import_test.go:664-764 is not in upstream-tests"),
            ("\t92\t", "\tline 92\t", "line 4 does not begin with a line of upstream"),
            ("our tests", "tests", "line 1 should have the columns file, test, asserts, our tests, state, reason"),
        ]:
            with self.subTest(new):
                self.assertIn(expected, self.complaints(old, new))

    def test_a_row_without_tests_may_be_one_that_is_not_covered(self):
        covered = "importer/pod::failure::a\tpart\tno raw disk"
        self.assertEqual(self.complaints(covered, "\tnot\tupstream's own library"), [])


VERSIONS = {
    "versions": ["1.0", "1.1", "main"],
    "described": {"1.1": "a new source"},
    "tests": {"import": ["importer/pod::failure::a"], "upload": ["importer/pod::failure::b"]},
    "differences": [
        {"since": "1.1", "areas": ["import"], "at": "v1.1 a.go:7"},
        {"since": "main", "areas": ["import", "upload"], "at": "v1.1 b.go:8"},
        {"areas": [], "at": "cdi#1"},
    ],
}
CONTRACT = "|`v1.1 a.go:7`|`v1.1 b.go:8`|"


class Versions(unittest.TestCase):
    def test_differences_from_main_are_counted(self):
        lines = [line.split("  ") for line in compatibility.matrix(VERSIONS, True)]
        cells = [[word.strip() for word in line if word] for line in lines]
        self.assertEqual(
            cells[:4],
            [
                ["CDI", "import", "upload"],
                ["1.0", "2 different", "1 different"],
                ["1.1", "by description", "by description"],
                ["main", "as main", "as main"],
            ],
        )
        self.assertEqual(cells[4], ["1.1, by description: a new source"])

    def test_each_mistake_is_seen(self):
        self.assertEqual(compatibility.version_complaints(VERSIONS, CONTRACT, PASSED), [])
        self.assertEqual(
            compatibility.version_complaints(VERSIONS | {"versions": ["1.0", "main"]}, "`v1.1 a.go:7`", {"importer/pod::failure::a"}),
            [
                "upload names importer/pod::failure::b, which did not run or did not pass",
                "v1.1 a.go:7 names 1.1, which is not listed",
                "v1.1 b.go:8 is not in contract.md",
            ],
        )


class Data(unittest.TestCase):
    def test_files_and_places_are_read(self):
        text = "# b_test.go 7\na_test.go 1 2-3\n\na_test.go 4 # 5\n"
        self.assertEqual(
            compatibility.upstream_tests(text), {("a_test.go", "1"), ("a_test.go", "2-3"), ("a_test.go", "4")}
        )

    def test_only_what_passed_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "importer.pod.log")
            log.write_text(
                "running 5 tests\ntest a::good ... ok\ntest a::bad ... FAILED\ntest a::ignored ... ignored\n"
                "test a::panics - should panic ... ok\ntest a::slow has been running for over 60 seconds\n"
            )
            self.assertEqual(
                compatibility.passed_tests(Path(folder)), {"importer/pod::a::good", "importer/pod::a::panics"}
            )


if __name__ == "__main__":
    unittest.main()
