"""Dagster's records in Postgres, as docs/operations.md says it (C109)."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg2
import pytest

from shop_pipeline_tests.conftest import REPOSITORY, run_shop
from shop_pipeline_tests.servers import ConnectServer, PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def test_the_documented_storage_holds_the_records(tmp_path: Path, postgres: PostgresServer, connect_server: ConnectServer) -> None:
    """Two loads at once, in two DAGSTER_HOMEs of one storage; the password is in no output and no file."""
    (documented,) = re.findall(r"```yaml\n(storage:.*?)```", (REPOSITORY / "docs" / "operations.md").read_text(), re.DOTALL)
    shipped = (REPOSITORY / "shop_pipeline" / "dagster.yaml").read_text()
    homes = [tmp_path / "one_home", tmp_path / "other_home"]
    for home in homes:
        home.mkdir()
        (home / "dagster.yaml").write_text(shipped + documented.replace("5432", str(postgres.port)))
    login = {"DAGSTER_PG_HOST": "127.0.0.1", "DAGSTER_PG_USERNAME": "app", "DAGSTER_PG_DB": "postgres"}
    environment = login | {"DAGSTER_PG_PASSWORD": postgres.password, "SHOP_SPARK_REMOTE": connect_server.url}
    assert run_shop("sample", folder=tmp_path).status == 0
    first = run_shop("load", "2026-09-02", folder=tmp_path, DAGSTER_HOME=str(homes[0]), **environment)
    assert first.out == "run 2026-09-02 loaded 2026-09-01: 3 rows, orders_daily has 3\n", first.err
    with ThreadPoolExecutor(2) as pool:
        ran = list(
            pool.map(
                lambda n: run_shop("load", f"2026-09-0{n + 3}", folder=tmp_path, DAGSTER_HOME=str(homes[n]), **environment),
                range(2),
            )
        )
    assert [each.status for each in ran] == [0, 0], ran
    with (
        psycopg2.connect(
            host="127.0.0.1", port=postgres.port, user="app", password=postgres.password, dbname="postgres"
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT status, count(*) FROM runs GROUP BY 1")
        assert cursor.fetchall() == [("SUCCESS", 3)]
    assert not [each for each in (first, *ran) if postgres.password in each.out + each.err]
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and postgres.password.encode() in path.read_bytes()]
    assert holding == []


def test_a_storage_that_does_not_answer_is_a_sentence(tmp_path: Path, postgres: PostgresServer) -> None:
    """Nothing is loaded whose record could not be kept."""
    home = tmp_path / "home"
    home.mkdir()
    (documented,) = re.findall(r"```yaml\n(storage:.*?)```", (REPOSITORY / "docs" / "operations.md").read_text(), re.DOTALL)
    (home / "dagster.yaml").write_text(documented.replace("5432", str(postgres.port)))
    login = {"DAGSTER_PG_HOST": "127.0.0.1", "DAGSTER_PG_USERNAME": "app", "DAGSTER_PG_DB": "postgres"}
    wrong = run_shop("check", "2026-09-02", folder=tmp_path, DAGSTER_HOME=str(home), DAGSTER_PG_PASSWORD="wrong-password", **login)
    assert wrong.status == 2
    assert "cannot be opened" in wrong.err
    assert "password authentication failed" in wrong.err
    assert "Traceback" not in wrong.err
    assert "wrong-password" not in wrong.err
