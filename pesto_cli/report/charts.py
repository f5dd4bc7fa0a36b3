"""Writing charts to files: SVG, PNG, HTML or Vega-Lite JSON, chosen by the ending of the name."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pesto_cli.errors import BadInputError
from pesto_cli.files import atomic_write
from pesto_cli.printable import printable_chart

if TYPE_CHECKING:
    import altair as alt

FORMATS = (".svg", ".png", ".html", ".json")
# Pixels of a PNG for each pixel of the chart.
PNG_SCALE = 2.0


def check_chart_path(path: Path) -> None:
    """Check the ending of a chart's name, before the work for the chart begins.

    Raises:
        BadInputError: the ending is not one of `FORMATS`.
    """
    if path.suffix not in FORMATS:
        raise BadInputError(
            f"chart {path}: a name that ends in {', '.join(FORMATS)} was expected; rename it."
        )


def write_chart(path: Path, chart: "alt.TopLevelMixin") -> None:
    """Write a chart in the format of its name's ending.

    Raises:
        BadInputError: the ending is not one of `FORMATS`, or the folder does not exist.
    """
    check_chart_path(path)
    import vl_convert

    specification = printable_chart(chart.to_dict())
    if path.suffix == ".svg":
        data = vl_convert.vegalite_to_svg(specification).encode()
    elif path.suffix == ".png":
        data = vl_convert.vegalite_to_png(specification, scale=PNG_SCALE)
    elif path.suffix == ".html":
        data = vl_convert.vegalite_to_html(specification, bundle=True).encode()
    else:
        data = json.dumps(specification).encode()
    atomic_write(path, data)
