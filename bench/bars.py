"""Pictures of tables: a horizontal bar for each server, in the style of the README's picture. Called by bench/figures.py."""

import math
import os
from xml.sax.saxutils import escape

from picture import ROOT, STYLE

# The width is near that of a phone, as in bench/picture.py.
WIDTH, LEFT, RIGHT, TOP, ROW = 480, 158, 78, 40, 28
# A bar has at least this length, so that its colour is seen.
SHORTEST = 3


def length(value, values, is_logarithmic):
    """The length of a bar."""
    span, most = WIDTH - LEFT - RIGHT, max(values)
    if not is_logarithmic:
        return max(SHORTEST, span * value / most)
    low = 10.0 ** math.floor(math.log10(min(values)) - 0.3)
    return max(SHORTEST, span * math.log(value / low) / math.log(most / low))


def picture(title, bars, about, is_logarithmic=False):
    """SVG of bars: for each its name, its value and the value's text."""
    values = [value for _, value, _ in bars]
    height = TOP + ROW * len(bars) + (38 if is_logarithmic else 22)
    said = "; ".join(f"{name} {text}" for name, _, text in bars)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 3 // 2}" height="{height * 3 // 2}" '
           f'role="img" font-family="system-ui,sans-serif" font-size="13.5"><title>{escape(title)}: {escape(said)}</title>',
           f"<style>{STYLE}</style>", f'<text class="t" x="0" y="16" font-size="15" font-weight="600">{escape(title)}</text>']
    for number, (name, value, text) in enumerate(bars):
        y, wide = TOP + ROW * number, length(value, values, is_logarithmic)
        colour = "b" if name.lower().startswith("flash") else "m"
        out += [f'<text class="t" x="0" y="{y + 14.5}">{escape(name)}</text>',
                f'<rect class="{colour}" x="{LEFT}" y="{y + 2}" width="{wide:.1f}" height="16" rx="2"/>',
                f'<text class="t" x="{LEFT + wide + 8:.1f}" y="{y + 14.5}" font-size="13">{escape(text)}</text>']
    if is_logarithmic:
        out.append(f'<text class="m" x="0" y="{height - 20}" font-size="11.5">Logarithmic: equal lengths are equal ratios.</text>')
    out.append(f'<text class="m" x="0" y="{height - 5}" font-size="11.5">{escape(about)}</text></svg>')
    return "\n".join(out) + "\n"


def written(name, title, bars, about, is_logarithmic=False):
    """Writes docs/measured/NAME.svg; the line of Markdown that shows it."""
    folder = os.path.join(ROOT, "docs", "measured")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.svg"), "w") as file:
        file.write(picture(title, bars, about, is_logarithmic))
    return f"![{title}](measured/{name}.svg)"
