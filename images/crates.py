"""The crates that programs are linked from; for images/bill-of-materials and images/licences."""

import functools
import subprocess

# Packages that images/compile.sh compiles together. cargo gives all of them the features that one
# of them needs: so h2 is in cdi-containerimage-server, whose own manifest does not ask for it.
TOGETHER = ("importer", "uploadserver", "uploadproxy", "cloner", "kubectl-cdi", "containerimage-server", "importer-tools")
# For Windows, kubectl-cdi is compiled alone, and for musl env-extractor.
ALONE = ("env-extractor",)


def linked(packages, target):
    """Returns the crates in the programs of these packages, ours included: {(name, version): (licence, whether it is ours)}."""
    found = {}
    for package in packages:
        is_alone = package in ALONE or "-windows-" in target
        nodes, edges = tree((package,) if is_alone else TOGETHER, target)
        (root,) = {crate for crate in nodes if crate[0] == package}
        waiting = [root]
        while waiting:
            crate = waiting.pop()
            if crate not in found:
                found[crate] = nodes[crate]
                waiting += edges[crate]
    return dict(sorted(found.items()))


@functools.cache
def tree(packages, target):
    """Returns what cargo compiles for the programs of these packages, and which crate uses which."""
    command = ["cargo", "tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "depth"]
    command += ["--format", " {p}\t{l}", *(f"--package={package}" for package in packages)]
    nodes, edges, path = {}, {}, []
    for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        # Lines are "2 name v1.2.3 (/path)", followed by the licence. "(*)" marks crates that were
        # printed with their dependencies before.
        what, _, licence = line.removesuffix(" (*)").partition("\t")
        if what:
            depth, name, version, *rest = what.split()
            crate = (name, version.removeprefix("v"))
            nodes[crate] = (licence.removesuffix(" (*)"), any(word.startswith("(/") for word in rest))
            edges.setdefault(crate, set())
            path[int(depth) :] = [crate]
            if len(path) > 1:
                edges[path[-2]].add(crate)
    return nodes, edges
