"""docs/bench.md says what was measured."""

from bench import page
from shop_pipeline_tests.conftest import REPOSITORY

MEASURED = {"name": "a", "what": "one : two", "bar": 1.3, "runs": [[2.5, 2.0], [2.6, 2.1]], "machine": "2 cores"}


def test_the_page_is_made_of_the_results() -> None:
    """Whoever measures anew, or edits one of them, makes the other by `python -m bench.page`."""
    results = page.read_results()
    assert (REPOSITORY / "docs" / "bench.md").read_text() == page.page(results)
    assert (REPOSITORY / "docs" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert all({"name", "what", "ratio", "bar", "runs"} <= set(each) for each in results)


def test_a_ratio_above_its_bar_is_not_held() -> None:
    """The bar itself is."""
    rows = [
        line
        for ratio in (1.2, 1.3, 1.31)
        for line in page.page([{**MEASURED, "ratio": ratio}]).splitlines()
        if line.startswith("| `a`")
    ]
    assert rows == [
        "| `a` | one : two | 1.20 | 1.30 | held | 2.5 : 2, 2.6 : 2.1 s |",
        "| `a` | one : two | 1.30 | 1.30 | held | 2.5 : 2, 2.6 : 2.1 s |",
        "| `a` | one : two | 1.31 | 1.30 | **not held** | 2.5 : 2, 2.6 : 2.1 s |",
    ]
    assert "Measured on 2 cores." in page.page([{**MEASURED, "ratio": 1}])
