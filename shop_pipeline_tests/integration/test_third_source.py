"""A third source costs a contract and under 60 lines: loaded, judged, checked, gated and scheduled like the other two."""

from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest

from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.resources import LakeResource, ShopflowResource, of_a_run
from shop_pipeline_tests import third_source
from shop_pipeline_tests.conftest import World, evaluations, failure_text
from shop_pipeline_tests.integration.conftest import Run

CONTRACT = """
apiVersion: v3.1.0
kind: DataContract
id: returns
version: 1.0.0
status: active
schema:
  - name: shopflow/returns_daily
    physicalName: Returned Goods
    properties:
      - name: return_id
        logicalType: integer
        physicalType: INT
        required: true
        unique: true
        primaryKey: true
      - name: returned_at
        logicalType: timestamp
        logicalTypeOptions: {format: "yyyy-MM-dd HH:mm:ss[.SSSSSS]"}
        physicalType: TIMESTAMP
        required: true
      - name: refund
        logicalType: number
        physicalType: DECIMAL(10,2)
        required: true
slaProperties:
  - {property: latency, value: 26, unit: h, element: shopflow/returns_daily.returned_at}
"""


@pytest.mark.spark
def test_a_third_source(world: World, url: str, run: Run, tmp_path: Path) -> None:
    assert len(Path(third_source.__file__).read_text().splitlines()) < 60
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "returns.yaml").write_text(CONTRACT)
    contract = load_contract("returns", tmp_path / "contracts")
    run('CREATE TABLE "Returned Goods" (return_id int, returned_at timestamp, refund numeric)')
    run("INSERT INTO \"Returned Goods\" SELECT n, TIMESTAMP '2024-01-01' + n * INTERVAL '5 hours', n FROM generate_series(1, 10) n")

    database = ShopflowResource.at(url)
    pipeline, told = third_source.returns_pipeline(contract, database, date(2024, 2, 1))
    resources = of_a_run(world.spark, LakeResource(uri=world.lake.uri), world.files, world.clock, database)

    def load(key: str) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [pipeline.load], partition_key=key, instance=world.instance, resources=resources, raise_on_error=False
        )

    result = load("2024-01-01")
    assert evaluations(world.instance, result)["2024-01-01"].description == (
        "ok 2024-01-01: 4 rows for the source's 4 orders, 0 missing"
    )
    run('UPDATE "Returned Goods" SET refund = 0.001 WHERE return_id = 2')
    refused = load("2024-01-01")
    assert not refused.success
    assert "column refund, value '0.001': more than 2 decimals" in failure_text(refused)
    rows = world.query('SELECT count(*), sum(refund)::VARCHAR FROM "shopflow/returns_daily"', "shopflow/returns_daily")
    assert rows == [(4, "10.00")]

    whole = dg.Definitions.merge(told, dg.Definitions(resources=resources))
    schedule = whole.resolve_schedule_def("returns_daily")
    at = datetime(2024, 1, 15, 7, tzinfo=UTC)
    with dg.build_schedule_context(
        scheduled_execution_time=at,
        repository_def=whole.get_repository_def(),
        resources={"shopflow": dg.ResourceDefinition.hardcoded_resource(database)},
    ) as context:
        (request,) = schedule.evaluate_tick(context).run_requests or []
    assert request.partition_key == "2024-01-14"
