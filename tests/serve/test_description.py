"""The description of the API (OpenAPI) is true: a fuzzer finds no answer that it does not describe."""

import pytest
from helpers.served import TOKEN
from hypothesis import HealthCheck, given, settings

from holobind.serve import Settings, create_app

ROUTES = 18
EXAMPLES = 8


def test_every_answer_is_described(model_files, tmp_path):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    allowed = Settings(hosts=("testserver",), token=TOKEN, open=True, journal=tmp_path)
    description = schemathesis.openapi.from_asgi("/openapi.json", create_app(model_files, allowed))
    n_routes = 0
    for found in description.get_all_operations():
        operation = found.ok()
        n_routes += 1

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        def check(case):
            # A description cannot say that a text and features exclude each other, or which labels a model has.
            sent = {"Authorization": f"Bearer {TOKEN}"}
            case.call_and_validate(headers=sent, excluded_checks=[positive_data_acceptance])

        check()
    assert n_routes == ROUTES
