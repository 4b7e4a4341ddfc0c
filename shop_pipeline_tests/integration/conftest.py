"""A Postgres server with the web shop's sample in it, and a database of its own for each test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shop_pipeline.core.local_postgres import LocalPostgres, packaged_binaries
from shop_pipeline.core.shopflow_sample import fill, make_database


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A server with the sample in it, from a package's binaries (no Docker, no root, a password), or from those that are named."""
    named = os.environ.get("TEST_POSTGRES_BINARIES")
    made = LocalPostgres(tmp_path_factory.mktemp("postgres"), Path(named) if named else packaged_binaries())
    assert fill(make_database(made.start())).startswith("wrote 731 days, orders 1 to ")
    yield made
    made.remove()


Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def url(server: LocalPostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, a copy of the sample."""
    assert server.url is not None
    base, name = server.url.rsplit("/", 1)[0], f"t{abs(hash(request.node.nodeid))}"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE shopflow")
        yield f"{base}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def run(url: str) -> Run:
    """Run a statement in the test's database."""

    def statement(text: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        with psycopg.connect(url, autocommit=True) as connection:
            done = connection.execute(text, values)  # type: ignore[call-overload]
            return done.fetchall() if done.description else []

    return statement
