"""The interface under a fuzzer: whatever is sent, no reply is a 5xx, and each is as the OpenAPI document says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from web_server import serving, write_run

from searchformer.web.app import make_app
from searchformer.web.options import ServeOptions

NOT_CHECKED = [
    negative_data_rejection,  # pydantic reads 1.0 as the whole number 1
    positive_data_acceptance,  # a task may be of the right form and still be impossible
]
schema = schemathesis.openapi.from_dict(make_app(ServeOptions(device="cpu")).app.openapi())


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("runs") / "small")
    with serving("--run", run) as address:
        yield address


@schema.parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_the_server(case, address):
    case.call_and_validate(base_url=address, excluded_checks=NOT_CHECKED)
