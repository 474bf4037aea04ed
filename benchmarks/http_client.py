"""A client that sends raw bytes to a server, also malformed ones, and counts the outcomes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field

from eventtensor.llm.bench.completion_client import Address

LIMIT_S = 900  # an answer takes longer than this only if something is stuck


@dataclass
class Outcomes:
    """The outcomes of requests. `wrong` are those that are neither whole nor refused; `num_retries`
    counts requests that were sent again after a refusal."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    num_retries: int = 0

    def merge(self, other: Outcomes) -> Outcomes:
        return Outcomes(self.ends + other.ends, self.wrong + other.wrong,
                        self.num_retries + other.num_retries)


async def exchange(at: Address, data: bytes, leave_after: float | None = None) -> bytes | None:
    """The answer to these bytes, up to the end of the connection; None if the client left."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    try:
        writer.write(data)
        if leave_after is None:
            return await asyncio.wait_for(reader.read(-1), LIMIT_S)
        await asyncio.sleep(leave_after)
        return None
    except ConnectionError:
        return b""
    finally:
        writer.close()


def post(path: str, body: bytes, **fields: str) -> bytes:
    heads = {"Host": "localhost", "Connection": "close", "Content-Type": "application/json",
             "Content-Length": str(len(body))} | {k.replace("_", "-"): v for k, v in fields.items()}
    lines = "".join(f"{k}: {v}\r\n" for k, v in heads.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0


def retry_after(answer: bytes) -> float:
    """Seconds that a refusal says to wait."""
    found = re.search(rb"^retry-after: (\d+)", answer, re.MULTILINE | re.IGNORECASE)
    return float(found[1]) if found else 1.0
