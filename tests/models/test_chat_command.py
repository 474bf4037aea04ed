"""`eventtensor chat`: one question per line, with the chat so far; ctrl-c stops an answer."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from eventtensor import SamplingParams
from eventtensor.errors import PromptTooLong
from eventtensor.llm.cli import commands
from eventtensor.llm.cli.chat_command import Conversation, converse
from eventtensor.llm.engine.request import Output
from tests.engine.tiny_chat import write_tiny_chat


class Echo:
    """Answers with what it was asked, a word at a time; `stop` is how many words come before
    ctrl-c."""

    def __init__(self, stop: int | None = None) -> None:
        self.asked: list[list[dict[str, str]]] = []
        self.stop, self.left = stop, 0

    def tokens(self, messages):
        if len(messages[-1]["content"]) > 100:
            raise PromptTooLong(100, "101 tokens")
        self.asked.append([dict(m) for m in messages])
        return messages

    def stream(self, messages, params):
        try:
            for k, word in enumerate(messages[-1]["content"].split()):
                if k == self.stop:
                    raise KeyboardInterrupt
                yield Output(f"{word}.")
        finally:
            self.left += 1


def talk(llm: Echo, *lines: str, system: str = "", is_terminal: bool = True) -> str:
    out = io.StringIO()
    conversation = Conversation(llm, SamplingParams(), system)
    converse(conversation, [f"{line}\n" for line in lines], out, is_terminal)
    llm.messages = conversation.messages
    return out.getvalue()


def test_each_question_has_what_was_said_before() -> None:
    llm = Echo()
    assert talk(llm, "a b", "", "c", "/clear", "d", "/exit", "e", system="S") == "a.b.\nc.\nd.\n"
    before = [{"role": "system", "content": "S"}]
    first = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "a.b."}]
    assert llm.asked == [
        [*before, first[0]], [*before, *first, {"role": "user", "content": "c"}],
        [*before, {"role": "user", "content": "d"}],
    ]


def test_an_answer_that_is_stopped_is_part_of_the_chat() -> None:
    llm = Echo(stop=2)
    assert talk(llm, "a b c d", "e") == "a.b.\ne.\n" and llm.left == 2
    assert [m["content"] for m in llm.messages] == ["a b c d", "a.b.", "e", "e."]
    with pytest.raises(KeyboardInterrupt):
        talk(Echo(stop=2), "a b c d", is_terminal=False)


def test_a_question_that_is_too_long_is_told_and_forgotten(capsys) -> None:
    llm = Echo()
    assert talk(llm, "x" * 101, "a") == "\na.\n"
    assert "100 tokens" in capsys.readouterr().err and len(llm.messages) == 2
    with pytest.raises(PromptTooLong):
        talk(Echo(), "x" * 101, is_terminal=False)


def test_lines_of_a_pipe_are_answered_by_a_model(tmp_path) -> None:
    folder = write_tiny_chat(tmp_path / "model")
    words = ["chat", str(folder), "--target", "cpu", "--dtype", "f32", "--max-tokens", "5",
             "--temperature", "0"]
    done = subprocess.run([sys.executable, "-m", "eventtensor.cli", *words], text=True,
                          input="Hi\n/clear\nHi\n", capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 2 and done.stdout == 2 * done.stdout[: len(done.stdout) // 2]


def test_a_model_that_cannot_chat_is_refused() -> None:
    done = CliRunner().invoke(commands.app, ["chat", "random:tiny-llama"])
    assert done.exit_code == 1 and "ET410" in done.output
    done = CliRunner().invoke(commands.app, ["chat", "random:tiny-llama", "--max-model-len", "0"])
    assert done.exit_code == 1 and "ET300" in done.output


def test_a_model_without_a_template_is_refused(monkeypatch) -> None:
    bare = SimpleNamespace(tokenizer=SimpleNamespace(template=None))
    monkeypatch.setattr("eventtensor.llm.cli.chat_command.open_model", lambda name: bare)
    done = CliRunner().invoke(commands.app, ["chat", "smollm2"])
    assert done.exit_code == 1 and "ET411: smollm2 has no chat template" in done.output
