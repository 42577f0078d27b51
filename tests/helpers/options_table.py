"""The table of options in docs/training.md, made from `holobind.training.config.OPTIONS`.

.venv/bin/python tests/helpers/options_table.py        writes it into the page
"""

from pathlib import Path

from holobind.training.config import COMMAND_LINE_ONLY, ESTIMATOR_ONLY, OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
START, END = "<!-- options -->\n", "<!-- end of options -->\n"


def table():
    lines = []
    for group in dict.fromkeys(option.group for option in OPTIONS.values()):
        lines += [f"**{group}**", "", "| option | values | meaning | default |", "|---|---|---|---|"]
        for option in OPTIONS.values():
            if option.group == group:
                lines.append(f"| `{option.name}` | {option.values.allowed} | {option.help} | {option.default_text} |")
        lines.append("")
    lines += ["Only the command line, or only the estimator, has these:", "", "| option | of | why |", "|---|---|---|"]
    lines += [f"| `--{name.replace('_', '-')}` | command line | {why} |" for name, why in COMMAND_LINE_ONLY.items()]
    lines += [f"| `{name}` | estimator | {why} |" for name, why in ESTIMATOR_ONLY.items()]
    return "\n".join(lines) + "\n"


def shown(page=PAGE):
    """The text of the page between its two marks."""
    return page.read_text(encoding="utf-8").split(START)[1].split(END)[0]


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END)[1], encoding="utf-8")
