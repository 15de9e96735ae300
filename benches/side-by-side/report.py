"""Makes a Markdown table and an SVG chart of the measurements of compare.py, and the tables of the other scripts."""

import argparse
import json
from html import escape
from pathlib import Path

from measure import Cost, medians, ratios

US = "cdi-importer"
COMMON = ("file: raw", "file: qcow2", "file: qcow2 zlib", "file: raw.gz", "file: raw.zst")
"""The cases of the brief chart."""

NAMES = {"us": "cdi-importer", "peer": "other programs", "limit": "only a part of the work"}
"""The legend of the chart."""

TOP, ROW, GAP, LEFT, WIDTH = 108, 29, 10, 330, 960
"""Sizes in the chart in pixels: first row, height of a row, space between cases, width of the names, total width."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--chart", type=Path, help="where the chart of all cases goes; a brief one goes beside it")
    parser.add_argument("--summary", action="store_true", help="only us and the fastest of the others")
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    for ways in result["cases"].values():
        ways |= {way: [Cost(**cost) for cost in costs] for way, costs in ways.items()}
    print(f"{headline(result)}\n")
    (summary if options.summary else table)(result["cases"])
    if options.chart:
        write_charts(result, options.chart)


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
        fastest = fastest_peer(by_way)
        ours, theirs = ("{:.1f} s, {:.1f} CPU s".format(*medians(by_way[way], "wall", "cpu")) for way in (US, fastest))
        memory = f"{medians(by_way[US], 'rss')[0] / 2**20:.0f} MiB"
        rows.append([name, ours, memory, fastest, theirs, compared(*ratios(by_way[US], by_way[fastest], "wall", "cpu"))])
    print_table("image and target | cdi-importer | peak memory | fastest alternative | its cost | ours to theirs", rows)


def fastest_peer(by_way: dict[str, list[Cost]]) -> str:
    peers = [way for way in by_way if way != US and not way.startswith("limit")]
    return min(peers, key=lambda way: medians(by_way[way], "wall"))


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


def write_charts(result: dict, path: Path) -> None:
    """Writes a chart of all measurements, and beside it one of the common images, each with us and the fastest of the others."""
    path.write_text(chart(result, result["cases"]))
    common = {name: {way: ways[way] for way in (US, fastest_peer(ways))} for name, ways in result["cases"].items() if name in COMMON}
    path.with_stem(f"{path.stem}-brief").write_text(chart(result, common))


def chart(result: dict, cases: dict[str, dict[str, list[Cost]]]) -> str:
    """Returns bars of wall time, each with a thin bar of CPU time below, over an axis in seconds."""
    longest = max(max(medians(costs, "wall", "cpu")) for ways in cases.values() for costs in ways.values())
    scale = (WIDTH - LEFT - 80) / longest
    parts, y = [], TOP
    for name, ways in cases.items():
        parts.append(f'<text x="16" y="{y + 11}" class="case">{escape(name)}</text>')
        for way, costs in sorted(ways.items(), key=lambda item: item[0] != US):
            parts += bars(way, *medians(costs, "wall", "cpu"), scale, y)
            y += ROW
        y += GAP
    kinds = {kind(way): None for ways in cases.values() for way in ways}
    return SVG.format(
        width=WIDTH,
        height=y + 20,
        inner_width=WIDTH - 1,
        inner_height=y + 19,
        caption=escape(headline(result)),
        legend="\n".join(legend(kinds)),
        axis="\n".join(axis(longest, scale, y)),
        bars="\n".join(parts),
    )


def kind(way: str) -> str:
    return "us" if way == US else "limit" if way.startswith("limit") else "peer"


def bars(way: str, wall: float, cpu: float, scale: float, y: int) -> list[str]:
    """Returns the two bars of a program, each with its seconds at its end."""
    return [
        f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(way.removeprefix("limit: "))}</text>',
        f'<rect x="{LEFT}" y="{y + 1}" width="{wall * scale:.1f}" height="11" class="{kind(way)}"/>',
        f'<text x="{LEFT + wall * scale + 5:.1f}" y="{y + 10.5}">{wall:.1f} s</text>',
        f'<rect x="{LEFT}" y="{y + 16}" width="{cpu * scale:.1f}" height="4" class="{kind(way)} cpu"/>',
        f'<text x="{LEFT + cpu * scale + 5:.1f}" y="{y + 22}" class="small">{cpu:.1f} s CPU</text>',
    ]


def axis(longest: float, scale: float, bottom: int) -> list[str]:
    """Returns vertical lines at round seconds, with the seconds above and below."""
    step = next(step for step in (1, 2, 5, 10, 20, 50) if longest / step < 9)
    lines = []
    for seconds in range(0, int(longest) + 1, step):
        x = LEFT + seconds * scale
        lines.append(f'<path d="M{x:.1f} {TOP - 6}V{bottom}" class="line"/>')
        lines += [f'<text x="{x:.1f}" y="{y}" text-anchor="middle" class="small">{seconds} s</text>' for y in (TOP - 10, bottom + 12)]
    return lines


def legend(kinds: dict[str, None]) -> list[str]:
    parts, x = [], 16
    for name, height, text in [*((kind, 11, NAMES[kind]) for kind in kinds), ("peer cpu", 4, "thin: CPU time of all processes")]:
        parts.append(f'<rect x="{x}" y="{66 - height // 2}" width="24" height="{height}" class="{name}"/>')
        parts.append(f'<text x="{x + 30}" y="70">{text}</text>')
        x += 60 + 7 * len(text)
    return parts


SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="sans-serif" font-size="12">
<title>Seconds until an imported disk is complete: cdi-importer and other programs</title>
<style>
.case, .head {{ font-weight: bold; }} .head {{ font-size: 15px; }} .small {{ font-size: 11px; opacity: 0.75; }} .cpu {{ opacity: 0.6; }}
text {{ fill: #1f2328; }} .page {{ fill: #ffffff; stroke: #d1d9e0; }} .line {{ stroke: #d1d9e0; }}
.us {{ fill: #1a7f37; }} .peer {{ fill: #6b7a90; }} .limit {{ fill: #c4cad2; }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3; }} .page {{ fill: #0d1117; stroke: #30363d; }} .line {{ stroke: #30363d; }}
.us {{ fill: #3fb950; }} .peer {{ fill: #8594a8; }} .limit {{ fill: #4b535d; }}
}}
</style>
<rect x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8" class="page"/>
<text x="16" y="26" class="head">Seconds until an imported disk is complete (shorter is better)</text>
<text x="16" y="46" class="small">{caption}</text>
{legend}
{axis}
{bars}
</svg>
"""

if __name__ == "__main__":
    main()
