#!/usr/bin/env python3
"""That ci/compatibility sees mistakes in the page, and finds none where there are none."""

import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
# A program has no suffix by which `import` would find it.
loader = SourceFileLoader("compatibility", str(Path(__file__).with_name("compatibility")))
compatibility = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(compatibility)

LISTED = {("import_test.go", "61"), ("import_test.go", "92"), ("import_test.go", "664-763")}
PASSED = {"importer/pod::failure::a", "importer/pod::failure::b"}

PAGE = """
# A page
| 1 | not in a section | of a file | same |

## import_test.go

| upstream | asserts | our tests | state |
| --- | --- | --- | --- |
| 61 (2329) raw | a message | `importer/pod::failure::a`<br>`importer/pod::failure::b` | same |
| 61 (2329) qcow2 | a message | `importer/pod::failure::a` | part: no raw disk |

Control plane only:

* 92, 664-763: no pod is made
"""


class Page(unittest.TestCase):
    def complaints(self, old, new):
        self.assertIn(old, PAGE)
        return compatibility.complaints(PAGE.replace(old, new), LISTED, PASSED)

    def test_a_right_page_is_right(self):
        self.assertEqual(self.complaints("", ""), [])

    def test_each_mistake_is_seen(self):
        for old, new, expected in [
            ("failure::b`", "failure::c`", "line 9 names importer/pod::failure::c, which did not run or did not pass"),
            ("`importer/pod::failure::b`", "`pod::b`", "line 9 names 'pod::b', which is no PACKAGE/PROGRAM::TEST"),
            ("b` | same", "b` | done", "line 9 has the unknown state 'done'"),
            ("part: no raw disk", "part", "line 10 lacks words on the state 'part'"),
            ("b` | same", "b` | same: nearly", "line 9 has words on the state 'same'"),
            ("`importer/pod::failure::a` | part", "none | part", "line 10 names no test"),
            (" | part: no raw disk", "", "line 10 has 3 cells instead of 4"),
            ("61 (2329) qcow2", "61 (2329) raw", "line 10 begins as another row does"),
            ("664-763", "664-764", "import_test.go:664-763 is missing"),
            ("664-763", "664-764", "import_test.go:664-764 is not in upstream-tests"),
            ("* 92, 664-763:", "* 92 and 664-763:", "line 14 is neither a row nor an item"),
            ("no raw disk |", "no raw disk", "line 10 is neither a row nor an item"),
            ("## import_test.go", "## import", "import_test.go:61 is missing"),
            ("Control plane only:", "<!-- pending: images: it -->", "line 12 is still pending"),
        ]:
            with self.subTest(new):
                self.assertIn(expected, self.complaints(old, new))

    def test_a_row_without_tests_may_be_one_that_is_not_covered(self):
        covered = "`importer/pod::failure::a` | part: no raw disk"
        self.assertEqual(self.complaints(covered, "none | not: upstream's own library"), [])


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
