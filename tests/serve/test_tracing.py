"""Request spans, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from eventtensor.errors import BadOption, MissingPackage
from eventtensor.llm.serve.tracing import check_endpoint
from tests.project.test_extras import EXTRAS
from tests.serve.server_process import fake
from tools import release

DECODE = """
import json, sys
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
print(json.dumps(MessageToDict(ExportTraceServiceRequest.FromString(sys.stdin.buffer.read()))))
"""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = {"model": "tiny", "prompt": "abcd", "max_tokens": 5, "ignore_eos": True}


@pytest.mark.parametrize("address", ["", "localhost:4318", "ftp://x", "http://", "http://a b", "x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(BadOption, match="otlp-endpoint"):
        check_endpoint(address)


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace", raising=False)
    with pytest.raises(MissingPackage, match="opentelemetry") as found:
        check_endpoint("http://localhost:4318")
    assert "eventtensor[trace]" in found.value.hint


class Collector(ThreadingHTTPServer):
    """Records requests. While `gate` is closed it does not answer."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies, self.gate = [], threading.Event()
        self.gate.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.gate.wait(60)
        self.server.bodies.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the packages of the extra `trace`."""
    folder = tmp_path_factory.mktemp("trace")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder),
                    "--disable-pip-version-check", *EXTRAS["trace"]], check=True, timeout=300)
    return folder


@pytest.fixture
def collector(packages, monkeypatch):
    paths = [str(release.ROOT / "src"), str(packages)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    made = Collector()
    yield made
    made.gate.set()
    made.shutdown()


def spans(collector):
    """(span, its attributes) for each received span."""
    found = []
    for path, body in collector.bodies:
        assert path == "/v1/traces"
        text = subprocess.run([sys.executable, "-c", DECODE], input=body, check=True,
                              capture_output=True).stdout
        for resource in json.loads(text)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                found += scope["spans"]
    return [(span, {a["key"]: plain(a["value"]) for a in span["attributes"]}) for span in found]


def plain(value):
    ((kind, given),) = value.items()
    if kind == "arrayValue":
        return [plain(v) for v in given["values"]]
    return int(given) if kind == "intValue" else given


@pytest.mark.full
def test_a_request_is_a_span_with_its_times_and_tokens(folder, collector):
    with fake(folder, otlp_endpoint=collector.url, step_s=0.01, max_num_seqs=2) as server:
        headers = {"traceparent": PARENT, "x-request-id": "mine"}
        whole = httpx.post(f"{server.url}/v1/completions", json=ASKED, headers=headers)
        chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3,
                "temperature": 0.5, "n": 2, "stream": True, "ignore_eos": True}
        streamed = httpx.post(f"{server.url}/v1/chat/completions", json=chat)
        refused = httpx.post(f"{server.url}/v1/completions", json=ASKED | {"max_tokens": 9999})
        unsampled = httpx.post(f"{server.url}/v1/completions", json=ASKED,
                               headers={"traceparent": PARENT[:-1] + "0"})
        answers = (whole, streamed, refused, unsampled)
        assert [r.status_code for r in answers] == [200, 200, 400, 200]
        server.process.terminate()
        assert server.exit_status() == 0
        assert len(server.log) == 1, "".join(server.log)
    (first, told), (second, more) = spans(collector)
    assert (first["name"], first["kind"]) == ("text_completion tiny", "SPAN_KIND_SERVER")
    assert told["gen_ai.request.id"] == "mine" and told["gen_ai.request.max_tokens"] == 5
    assert told["gen_ai.usage.input_tokens"] == whole.json()["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    times = [told[f"gen_ai.latency.{part}"] for part in (
        "time_in_queue", "time_in_model_prefill", "time_in_model_decode", "e2e")]
    assert times[2] >= 4 * 0.01 and sum(times[:3]) <= times[3]
    assert int(first["endTimeUnixNano"]) - int(first["startTimeUnixNano"]) >= 5 * 10**7
    _, trace, parent, _ = PARENT.split("-")
    assert base64.b64decode(first["traceId"]).hex() == trace
    assert base64.b64decode(first["parentSpanId"]).hex() == parent
    assert "parentSpanId" not in second  # it came without a context
    assert second["name"] == "chat tiny" and more["gen_ai.request.choice.count"] == 2
    assert more["gen_ai.usage.output_tokens"] == 6 and more["gen_ai.request.temperature"] == 0.5


@pytest.mark.full
def test_a_collector_that_does_not_answer_holds_nothing_up(folder, collector):
    collector.gate.clear()
    with fake(folder, otlp_endpoint=f"{collector.url}/v1/traces", drain_s=1) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for _ in range(200):
                assert client.post("/v1/completions", json=ASKED).status_code == 200
            assert client.get("/health").status_code == 200
        server.process.terminate()
        assert server.exit_status() == 0
