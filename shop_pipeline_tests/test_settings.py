"""Settings: defaults, wrong ones, and who may read the environment."""

import ast
from pathlib import Path

import pytest

from shop_pipeline.core.errors import SettingError
from shop_pipeline.settings import load_settings, prepare_dagster_home
from shop_pipeline_tests.conftest import REPOSITORY, Shop

PACKAGE = REPOSITORY / "shop_pipeline"


def test_a_fresh_folder_is_a_fresh_world(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.landing == tmp_path / "landing"
    assert settings.lake == str(tmp_path / "lake")
    assert settings.dagster_home == tmp_path / "dagster_home"
    assert settings.first_run_date.isoformat() == "2026-09-02"
    assert settings.spark_remote is None


def test_settings_come_from_the_environment_and_from_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("SHOP_LANDING=incoming\nSHOP_TIMEZONE=Europe/Berlin\n")
    monkeypatch.setenv("SHOP_TIMEZONE", "Asia/Tokyo")
    monkeypatch.setenv("SHOP_LAKE", "tables")
    monkeypatch.setenv("SHOP_SPARK_REMOTE", "")
    settings = load_settings()
    assert settings.landing == tmp_path / "incoming"
    assert settings.timezone == "Asia/Tokyo"
    assert settings.lake == str(tmp_path / "tables")
    assert settings.spark_remote is None


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SHOP_FIRST_RUN_DATE", "yesterday", "'yesterday' is not a date"),
        ("SHOP_FIRST_RUN_DATE", "1788307200", "is not a date"),
        ("SHOPFLOW_FIRST_DAY", "2024-13-01", "is not a date"),
        ("SHOP_TIMEZONE", "Mars/Olympus", "'Mars/Olympus' is not a time zone"),
        ("SHOP_SPARK_REMOTE", "localhost:15002", "write sc://host:port"),
        ("SHOP_LAKE", "afile/lake", "afile is a file, not a folder"),
        ("SHOP_LANDING", "afile", "afile is a file, not a folder"),
        ("DAGSTER_HOME", "afile", "afile is a file, not a folder"),
        ("SHOP_SPARK_MEMORY", "lots", "'lots' is not an amount of memory"),
        ("SHOP_SPARK_MASTER", "spark:/x", "'spark:/x' is not a Spark master; write "),
        ("SHOP_SPARK_MASTER", "foo", "'foo' is not a Spark master; write "),
        ("SHOP_LAKE", "100%/lake", "has % in it, which not every engine takes literally"),
        ("SHOP_LAKE", "s3://bucket/lake", "is an object store, to which this version cannot commit safely"),
    ],
)
def test_a_wrong_setting_is_named_with_its_reason(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch, shop_without_spark: Shop, tmp_path: Path
) -> None:
    (tmp_path / "afile").touch()
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"A setting is wrong: {name}: .*{reason}"):
        load_settings()
    ran = shop_without_spark("check", "2026-09-02")
    assert (ran.status, ran.out) == (2, "")
    assert name in ran.err
    assert "Traceback" not in ran.err


def test_a_mistyped_setting_is_not_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_LANDNG", "elsewhere")
    load_settings()
    assert "SHOP_LANDNG is not a setting and is ignored; did you mean SHOP_LANDING?" in capsys.readouterr().err


def test_a_new_dagster_home_gets_the_shipped_file_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    home = prepare_dagster_home(load_settings())
    shipped = (REPOSITORY / "dagster_home" / "dagster.yaml").read_text()
    assert (home / "dagster.yaml").read_text() == shipped
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    prepare_dagster_home(load_settings())
    assert (home / "dagster.yaml").read_text() == "telemetry:\n  enabled: false\n"


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module}
    return names


LAYERS = ["core", "resources", "partitions", "assets", "checks", "automation", "definitions", "cli"]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    """core ← resources, partitions ← assets ← checks ← automation ← definitions, cli; core knows no dagster."""
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    found = _imports(path)
    assert not any(name.startswith("shop_pipeline_tests") for name in found)
    if layer == "core":
        assert not any(name.split(".")[0].startswith("dagster") for name in found)
    if layer not in ("settings", "definitions", "cli"):
        assert "shop_pipeline.settings" not in found
    if layer in LAYERS:
        above = LAYERS[LAYERS.index(layer) + 1 :]
        assert not {name for name in found if name.startswith("shop_pipeline.") and name.split(".")[1] in above}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_settings_read_the_environment(path: Path) -> None:
    """And Spark's start, which passes it on to the JVM."""
    reads = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    if path.name not in ("settings.py", "spark.py", "spark_server.py"):
        assert not reads & {"environ", "getenv"}


@pytest.mark.parametrize(
    ("urls", "entry"),
    [("nonsense://u:pw123@x", 1), ("json://127.0.0.1:1/ justtext-pw123", 2), ("json://user:my pw123@127.0.0.1:1/", 1)],
)
def test_an_alert_address_that_is_none_stops_start_up_unread(monkeypatch: pytest.MonkeyPatch, urls: str, entry: int) -> None:
    monkeypatch.setenv("SHOP_ALERT_URLS", urls)
    with pytest.raises(SettingError, match=f"SHOP_ALERT_URLS: entry {entry} is no address that apprise knows") as caught:
        load_settings()
    assert "pw123" not in str(caught.value)


CLOCKS = {"now", "today", "utcnow", "time", "localtime", "gmtime", "current_date", "current_timestamp", "monotonic"}


@pytest.mark.parametrize(
    "path",
    sorted([*(PACKAGE / "core").rglob("*.py"), *(PACKAGE / "assets").rglob("*.py")]),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_load_code_asks_no_clock(path: Path) -> None:
    """A4: the key is the only date the work knows; the one clock is passed in."""
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & CLOCKS, f"{path} asks a clock"
    assert "current_date" not in path.read_text().lower()
    assert "current_timestamp" not in path.read_text().lower()
