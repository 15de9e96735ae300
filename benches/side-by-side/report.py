"""Makes a Markdown table and an SVG chart of the measurements of compare.py, and the tables of the other scripts."""

import argparse
import json
from html import escape
from pathlib import Path

from measure import Cost, medians, ratios

US = "cdi-importer"
BAR, GAP, LEFT, WIDTH = 18, 26, 330, 1000
"""Sizes in the chart in pixels: height of a bar, space between cases, width of the names, total width."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--chart", type=Path, help="where the chart goes")
    parser.add_argument("--summary", action="store_true", help="only us and the fastest of the others")
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    for ways in result["cases"].values():
        ways |= {way: [Cost(**cost) for cost in costs] for way, costs in ways.items()}
    print(f"{headline(result)}\n")
    (summary if options.summary else table)(result["cases"])
    if options.chart:
        options.chart.write_text(chart(result))


def headline(result: dict) -> str:
    machine = result["machine"]
    return (
        f"{machine['date']}, commit {machine['commit']}: {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, kernel {machine['kernel']}, medians of {result['pairs']} alternating rounds"
    )


def table(cases: dict[str, dict[str, list[Cost]]]) -> None:
    """Prints a row for each program. The ratios are ours to theirs, as medians of the rounds."""
    rows = []
    for name, by_way in cases.items():
        for way, costs in by_way.items():
            wall, cpu, rss, written, temporary = medians(costs, "wall", "cpu", "rss", "written", "temporary")
            cells = [f"{wall:.2f}", f"{cpu:.2f}", f"{rss / 2**20:.0f}", f"{written / 1e6:.0f}", f"{temporary / 1e6:.0f}"]
            same = way == US
            compared = ["", ""] if same else [f"{ratio:.2f}×" for ratio in ratios(by_way[US], costs, "wall", "cpu")]
            rows.append([name if same else "", f"**{way}**" if same else way, *cells, *compared])
    print_table("image and target | way | wall s | CPU s | RSS MiB | written MB | temporary MB | our wall | our CPU", rows)


def summary(cases: dict[str, dict[str, list[Cost]]]) -> None:
    """Prints a row for each case: our importer against the fastest peer."""
    rows = []
    for name, by_way in cases.items():
        peers = [way for way in by_way if way != US and not way.startswith("limit")]
        fastest = min(peers, key=lambda way: medians(by_way[way], "wall"))
        ours, theirs = ("{:.1f} s, {:.1f} CPU s".format(*medians(by_way[way], "wall", "cpu")) for way in (US, fastest))
        memory = f"{medians(by_way[US], 'rss')[0] / 2**20:.0f} MiB"
        rows.append([name, ours, memory, fastest, theirs, compared(*ratios(by_way[US], by_way[fastest], "wall", "cpu"))])
    print_table("image and target | cdi-importer | peak memory | fastest alternative | its cost | ours to theirs", rows)


def print_table(head: str, rows: list[list[str]]) -> None:
    """Prints a Markdown table."""
    columns = head.split(" | ")
    for cells in columns, ["---"] * len(columns), *rows:
        print(f"| {' | '.join(cells)} |", flush=True)


def compared(wall: float, cpu: float) -> str:
    """Returns ratios of ours to theirs."""
    return f"**{wall:.2f}×** time, {cpu:.2f}× CPU"


def print_pairs(head: str, costs: dict[tuple, list[Cost]], ways: list[str]) -> None:
    """Prints a row for each case: the medians of each way, and the first way compared with the last."""
    rows = []
    for *case, first in costs:
        if first == ways[0]:
            of_ways = [costs[(*case, way)] for way in ways]
            cells = [figures(*medians(of_way, "wall", "cpu", "rss")) for of_way in of_ways]
            rows.append([", ".join(case), *cells, compared(*ratios(of_ways[0], of_ways[-1], "wall", "cpu"))])
    print_table(head, rows)


def print_walls(head: str, costs: dict[tuple, list[Cost]], digits: int) -> None:
    """Prints a row for each case: the median seconds of its two ways, and of the first to the second."""
    rows = []
    for *case, _ in list(costs)[::2]:
        ours, theirs = (medians(of_way, "wall")[0] for (*other, _), of_way in costs.items() if other == case)
        rows.append([" ".join(case), f"{ours:.{digits}f} s", f"{theirs:.{digits}f} s", f"**{ours / theirs:.2f}×**"])
    print_table(head, rows)


def figures(wall: float, cpu: float, rss: float) -> str:
    return f"{wall:.1f} s, {cpu:.1f} CPU s, {rss / 2**20:.0f} MiB"


def chart(result: dict) -> str:
    """Returns bars of wall time, each with the CPU time below it in a second shade."""
    cases = result["cases"]
    longest = max(max(medians(costs, "wall", "cpu")) for ways in cases.values() for costs in ways.values())
    scale = (WIDTH - LEFT - 60) / longest
    parts, y = [], 60
    for name, ways in cases.items():
        parts.append(f'<text x="8" y="{y + 13}" class="case">{escape(name)}</text>')
        for way, costs in sorted(ways.items(), key=lambda item: item[0] != US):
            parts.append(bar(way, *medians(costs, "wall", "cpu"), scale, y))
            y += BAR + 4
        y += GAP - 4
    return SVG.format(width=WIDTH, height=y, title=escape(headline(result)), bars="\n".join(parts))


def bar(way: str, wall: float, cpu: float, scale: float, y: int) -> str:
    kind = "us" if way == US else "limit" if way.startswith("limit") else "peer"
    label = way.removeprefix("limit: ")
    return (
        f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{LEFT}" y="{y}" width="{wall * scale:.1f}" height="{BAR - 7}" class="{kind}"/>'
        f'<rect x="{LEFT}" y="{y + BAR - 6}" width="{cpu * scale:.1f}" height="4" class="{kind} cpu"/>'
        f'<text x="{LEFT + max(wall, cpu) * scale + 6:.1f}" y="{y + 12}">{wall:.1f} s</text>'
    )


SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">
<style>
.case {{ font-weight: bold; }} .us {{ fill: #1b7f3b; }} .peer {{ fill: #6b7a90; }} .limit {{ fill: #c9ced6; }}
.cpu {{ opacity: 0.55; }} svg {{ background: white; }}
</style>
<text x="8" y="20" font-size="15" font-weight="bold">Time to a complete disk: wall (thick), CPU (thin)</text>
<text x="8" y="40" fill="#555">{title}</text>
{bars}
</svg>
"""

if __name__ == "__main__":
    main()
