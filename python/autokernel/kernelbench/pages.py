"""A score as text for a terminal and as a page of HTML."""

import html

from autokernel.kernelbench.score import AGAINST, THRESHOLDS, VERDICTS

_STYLE = """:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1b1f27;--muted:#626b7a;--line:#e3e6ec;--good:#0f8a5f;--bad:#c2341d}
@media (prefers-color-scheme:dark){:root{--bg:#0f1217;--card:#171b22;--text:#e7eaf0;--muted:#98a2b3;--line:#2b313c;--good:#4cd6a0;--bad:#ff8a73}}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,sans-serif}main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px;margin-top:20px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th{color:var(--muted);font-size:13px;text-align:left}
th,td{padding:6px 10px 6px 0;border-bottom:1px solid var(--line)}.n{text-align:right}.muted{color:var(--muted)}.good{color:var(--good)}.bad{color:var(--bad)}"""
_BAD = ("failed build", "wrong", "correct for kb alone")


def heading(score):
    settings = score["settings"]
    return f"KernelBench, {settings['precision']} on {settings['device']}: {len(score['problems'])} problems"


def text(score):
    """The tables of a score for a terminal."""
    parts = [heading(score), _problems_text(score["problems"])]
    parts += [_totals_text(f"verdict {verdict}, against {_named(against)}", score, verdict, against) for verdict in VERDICTS for against in AGAINST]
    degenerate = score["totals"]["all"]["kb"]["degenerate"]
    counted = f"{degenerate['problems']} degenerate problems, which answers that compute nothing pass too, are in none of these totals"
    parts.append(f"{counted}; {degenerate['correct']} of them have a correct solution.")
    return "\n\n".join(parts)


def _named(against):
    return {"eager": "eager", "best": "the best of eager and torch.compile"}[against]


def _cells(row):
    """A problem's line as text cells."""
    speeds = [_factor(row[verdict] and row[verdict][against]) for verdict in VERDICTS for against in AGAINST]
    status = row["status"] + (", degenerate" if row["degenerate"] else "")
    return [f"{row['level']}/{row['number']}", row["title"][:44], row["family"] or "", status, *speeds]


_PROBLEM_HEAD = ["problem", "", "family", "", "kb/eager", "kb/best", "strict/eager", "strict/best"]


def _problems_text(rows):
    return _aligned([_PROBLEM_HEAD, *map(_cells, rows)])


def _factor(value):
    return "" if value is None else f"{value:.2f}x"


def _totals_rows(score, verdict, against):
    named = [("all", score["totals"]["all"])]
    named += [(f"level {level}", total) for level, total in score["totals"]["levels"].items()]
    named += list(score["totals"]["families"].items())
    rows = []
    for name, total in named:
        numbers, speed = total[verdict], total[verdict]["against"][against]
        rows.append([name, str(numbers["problems"]), str(numbers["judged"]), str(numbers["correct"]), *(f"{speed['fast_p'][str(p)]:.3f}" for p in THRESHOLDS),
                     _factor(speed["geometric_mean"]), _factor(speed["geometric_mean_of_faster"])])
    return rows


_TOTALS_HEAD = ["", "problems", "judged", "correct", *(f"fast_{p}" for p in THRESHOLDS), "mean", "mean of faster"]


def _totals_text(title, score, verdict, against):
    return title + "\n" + _aligned([_TOTALS_HEAD, *_totals_rows(score, verdict, against)])


def _aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def page(score):
    """One page of HTML that needs nothing else; all text from outside is escaped."""
    sections = [_section("Problems", _PROBLEM_HEAD + ["why"], [(_cells(row) + [row["reason"]], _colour(row)) for row in score["problems"]])]
    for verdict in VERDICTS:
        for against in AGAINST:
            rows = [(row, "") for row in _totals_rows(score, verdict, against)]
            sections.append(_section(f"Verdict {verdict}, against {_named(against)}", _TOTALS_HEAD, rows))
    title = html.escape(heading(score))
    note = "Means are geometric, over correct solutions. Degenerate problems, which answers that compute nothing pass too, are in no total."
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style><main><h1>{title}</h1>'
            f'<p class="muted">{note}</p>{"".join(sections)}</main></html>\n')


def _colour(row):
    return "good" if row["status"] == "faster" else "bad" if row["status"] in _BAD else ""


def _section(title, head, rows):
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(f'<tr class="{colour}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells, colour in rows)
    return f"<section><h2>{html.escape(title)}</h2><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></section>"
