"""No command shows a traceback: an error of the user is one line with a code, for any words."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from eventtensor import LLM
from eventtensor.errors import BadOption, BadPrompt
from eventtensor.llm.cli import commands, compile_command, options, server_launch
from eventtensor.llm.cli.capacity_table import capacity_table
from eventtensor.llm.cli.terminal import terminal

MODEL = "random:tiny-llama"
ODD = ("nan", "inf", "-inf", "-1", "1e400", "9" * 40, "", "x", "-0.0", "1.5")


def ran(*words: str) -> tuple[int, str]:
    """Status and output. An exception that is not an error of the user is raised."""
    done = CliRunner().invoke(commands.app, list(words), catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def refused(*words: str) -> str:
    status, said = ran(*words)
    assert status in (1, 2), said
    assert "Traceback" not in said
    return said


SERVE = (
    "--receive-s",
    "--max-connections",
    "--port",
    "--max-num-seqs",
    "--gpu-memory-utilization",
    "--max-num-batched-tokens",
    "--max-model-len",
    "--max-waiting",
    "--max-prefill-tokens",
    "--cache-gb",
    "--max-body-mb",
    "--step-limit-s",
    "--drain-s",
    "--response-store",
)


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that passes its checks ends with the error 'reached'."""
    def reached(*_: object, **__: object) -> None:
        raise BadPrompt("reached")

    monkeypatch.setattr("eventtensor.llm.cli.server_launch.bind", reached)
    monkeypatch.setattr("eventtensor.llm.cli.generate_command.open_model", reached)
    monkeypatch.setattr("eventtensor.llm.cli.bench_command.LLM", reached)
    monkeypatch.setattr("eventtensor.llm.cli.bench_command.measure_startup", reached)
    monkeypatch.setattr("eventtensor.llm.cli.bench_command.run_server", reached)


@pytest.mark.parametrize("option, known", [
    ("--tool-parser", ["auto", "hermes", "llama3_json", "prompted"]),
    ("--reasoning-parser", ["auto", "none", "think"])])
def test_parsers_are_those_that_are_known(no_models, option: str, known: list[str]) -> None:
    for name in known:
        assert "reached" in refused("serve", MODEL, option, name)
    for name in ("nonsense", "", "\ud800"):
        said = refused("serve", MODEL, option, name)
        assert "reached" not in said and "parser is" in said


@pytest.mark.parametrize("given, wanted", [
    ((), False), (("--no-additional-properties",), False), (("--additional-properties",), True)])
def test_schemas_are_closed_unless_asked(no_models, monkeypatch, given, wanted) -> None:
    found = []

    def make(*_: object, **options: object) -> None:
        found.append(options["additional_properties"])
        raise BadPrompt("reached")

    monkeypatch.setattr("eventtensor.llm.cli.server_launch.bind", lambda *_: [])
    monkeypatch.setattr("eventtensor.llm.cli.server_launch.LLM", make)
    assert "reached" in refused("serve", MODEL, *given)
    assert found == [wanted]


@pytest.mark.parametrize("option", SERVE)
@pytest.mark.parametrize("value", ODD)
def test_no_number_of_serve_is_taken_unseen(no_models, option: str, value: str) -> None:
    said = refused("serve", MODEL, option, value)
    if value in ("nan", "inf", "-inf", "1e400", "", "x", "9" * 40):
        assert "reached" not in said


@pytest.mark.parametrize("option", ["--max-tokens", "--temperature", "--top-k", "--top-p",
                                    "--seed"])
@pytest.mark.parametrize("value", ODD)
def test_no_number_of_generate_is_taken_unseen(no_models, option: str, value: str) -> None:
    said = refused("generate", MODEL, "--prompt", "x", option, value)
    if value in ("nan", "inf", "-inf", "1e400", "", "x", "9" * 40):
        assert "reached" not in said


@pytest.mark.parametrize("words", [
    *(("latency", MODEL, o) for o in ("--batch", "--input", "--output", "--runs", "--warm",
                                      "--cache-gb")),
    *(("throughput", MODEL, o) for o in ("--requests", "--input", "--output", "--runs", "--warm",
                                         "--cache-gb")),
    *(("serve", MODEL, o) for o in ("--requests", "--input", "--output", "--warm", "--cache-gb",
                                    "--clients")),
    ("startup", MODEL, "--runs"),
], ids=lambda w: f"{w[0]}{w[2]}")
@pytest.mark.parametrize("value", ODD)
def test_no_number_of_bench_is_taken_unseen(no_models, words, value: str) -> None:
    said = refused("bench", *words, value)
    if value in ("nan", "inf", "-inf", "1e400", "", "x", "9" * 40):
        assert "reached" not in said


@pytest.mark.parametrize("option", ["--prompt", "--system"])
def test_a_prompt_that_is_not_utf8_is_refused(option: str) -> None:
    words = ["--prompt", "x"] if option != "--prompt" else []
    assert "ET300" in refused("generate", MODEL, *words, option, "a\udcff")


def test_half_a_character_is_no_prompt_in_python_either(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    from eventtensor.llm.text.tokenizer import Tokenizer as Ours

    ours = Ours(Tokenizer(models.BPE({"a": 0}, [])), eos=(), special={}, template=None)
    assert ours.encode("a") == [0]
    with pytest.raises(BadPrompt, match="half a character at 1"):
        ours.encode("a\ud800")


@pytest.mark.parametrize("words", [
    ("--clients", "0"), ("--clients", ","), ("--clients", "1,,2"), ("--clients", "1" * 30),
    ("--out", "/nowhere/x.json"), ("--out", "."), ("--url", "http://x"),
])
def test_a_bench_that_makes_no_sense_is_refused(no_models, words) -> None:
    assert "ET300" in refused("bench", "serve", MODEL, *words)


@pytest.mark.parametrize("url", ["http://[", "http://h:99999", "http://127.0.0.1:1", "\udcff"])
def test_an_address_of_no_server_is_an_error(url: str) -> None:
    said = refused("bench", "serve", "--url", url)
    assert "ET300" in said or "ET356" in said


@pytest.mark.parametrize("name", [
    "", ":", ":f", "x.py:", "..:f", "a..b:f", "a b:f", "\udcff:f", "no.py:f", "/:f", "sys:exit ",
    "os:sep", "sys:getsizeof",
])
def test_what_is_no_program_is_refused(name: str) -> None:
    for command in ("check", "explain"):
        assert "ET3" in refused(command, name)


FILES = {
    "syntax": "def f(:", "bytes": "\0", "raises": "def f(): return 1 // 0", "at_once": "1 // 0",
    "deep": "def f(): return f()", "other": "def f(): return 3", "needs": "def f(x): return x",
    "imports": "import not_there_at_all", "ends": "raise SystemExit(0)",
    "ends_late": "import sys\ndef f(): sys.exit()",
}


@pytest.mark.parametrize("kind", FILES)
def test_errors_of_a_users_file_are_a_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"{kind}.py"
    path.write_text(FILES[kind])
    said = refused("check", f"{path}:f")
    assert "ET300" in said if kind == "other" else "ET355" in said and str(path) in said


def test_a_file_may_have_dataclasses(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text(
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Sizes:\n    rows: int\n"
        "def f(): return Sizes(3).rows\n")
    assert "gives a int" in refused("check", f"{path}:f")


@pytest.mark.parametrize("words", ["--help", "--version", "check --help", "models"])
def test_a_full_disk_ends_every_output_with_a_line(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "eventtensor.cli", *words.split()],
                              stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("ET356: No space left on device")


def test_compile_into_a_file_is_refused_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        assert "file is a file" in refused("compile", MODEL, "--out", str(out))


@pytest.mark.parametrize("error, status, shown", [
    (OSError(errno.ENOSPC, "No space left on device", "x.json"), 1, "ET356: x.json: No space"),
    (MemoryError(), 1, "ET346"), (UnicodeError("odd"), 1, "ET356: odd"),
    (KeyboardInterrupt(), 130, ""), (BadOption("so", hint="then"), 1, "ET300: so\n  hint: then"),
])
def test_refusals_of_the_system_are_lines(capsys, error, status: int, shown: str) -> None:
    with pytest.raises(typer.Exit) as caught, options.user_errors():
        raise error
    assert caught.value.exit_code == status
    assert shown in capsys.readouterr().err


def test_a_reader_that_leaves_ends_a_command_quietly(monkeypatch, capsys, tmp_path) -> None:
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(typer.Exit) as caught, options.user_errors():
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert caught.value.exit_code == 141 and not capsys.readouterr().err


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), options.user_errors():
        _ = 1 // 0


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[server_launch.ServeArguments]:
    """The arguments that `serve` passes on."""
    found: list[server_launch.ServeArguments] = []
    monkeypatch.setattr(server_launch, "serve_model", found.append)
    return found


def test_commands_of_vllm_mean_the_same_here(wanted) -> None:
    for new, old, value in (("--max-model-len", "--context", "512"),
                            ("--max-num-seqs", "--max-running", "8")):
        ran("serve", MODEL, new, value), ran("serve", MODEL, old, value)
    ran("serve", MODEL, "--dtype", "bfloat16"), ran("serve", MODEL, "--dtype", "auto")
    ran("serve", MODEL)
    ran("serve", MODEL, "--max-num-batched-tokens", "8192", "--gpu-memory-utilization", "0.5")
    ran("serve", MODEL, "--dtype", "float32", "--max-num-batched-tokens", "64")
    ran("serve", MODEL, "--enable-prefix-caching")
    lengths, ours, *_ = wanted
    assert lengths == ours and ours.max_model_len == 512
    assert wanted[2] == wanted[3] and wanted[3].max_num_seqs == 8
    assert wanted[4] == wanted[5] == wanted[6]
    assert wanted[6].max_model_len is wanted[6].cache_gb is None
    assert (wanted[7].max_num_batched_tokens, wanted[7].gpu_memory_utilization) == (128, 0.5)
    assert (wanted[8].max_num_batched_tokens, wanted[8].dtype) == (64, "f32")
    assert wanted[9] == wanted[6]


@pytest.mark.parametrize("old, new, value", [
    ("--context", "--max-model-len", "64"), ("--max-running", "--max-num-seqs", "3"),
    ("--name", "--served-model-name", "a"), ("--prompt-rows", "--max-prefill-tokens", "7"),
    ("--cors-origin", "--allow-origin", "*"), ("--same-bits", "--batch-invariant", None)])
def test_an_old_option_means_the_new_one_and_names_it(wanted, old, new, value) -> None:
    words = [] if value is None else [value]
    status, said = ran("serve", MODEL, old, *words)
    assert (status, said) == (0, f"eventtensor: {old} is called {new} now\n")
    assert ran("serve", MODEL, new, *words) == (0, "")
    ran("serve", MODEL)
    assert wanted[0] == wanted[1] != wanted[2]


@pytest.mark.parametrize("words", [
    ("--served-model-name", "--context"), ("--served-model-name", "--name")])
def test_a_value_may_look_like_an_old_option(wanted, words) -> None:
    assert ran("serve", MODEL, *words) == (0, "")
    assert wanted[0].names == (words[1],)


def test_a_server_says_what_fits() -> None:
    with LLM(
        MODEL,
        target="cpu",
        dtype="f32",
        max_model_len=300,
        max_num_seqs=5,
        max_waiting=7,
        cache_gb=1 / 1024,
    ) as llm:
        said = capacity_table(llm, "[red]x", 8000)
    assert said.splitlines() == [
        "model     [red]x, f32 on cpu",
        "weights   0.00135 GB",
        "cache     0.000977 GB for 1,024 tokens",
        "context   300 tokens, of 1,024 of the model",
        "requests  5 run, 2 of them with a full context; 7 wait",
        "port      8000",
    ]


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", ":smile:", "a" * 200])
def test_a_path_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], name: str) -> None:
    terminal(stderr=True).print(f"{name}: done")
    assert capsys.readouterr().err == f"{name}: done\n"


def test_compile_shows_its_folder(monkeypatch, capsys, tmp_path: Path) -> None:
    class Kernels:
        def close(self) -> None:
            pass

    def compiled(spec: object, weights: object, options: object) -> Kernels:
        given.append(options)
        return Kernels()

    given: list[object] = []
    monkeypatch.setattr(compile_command, "compile_kernels", compiled)
    monkeypatch.setattr(compile_command, "save_kernels", lambda *_: None)
    folder = tmp_path / "[bold]x"
    compile_command.compile_model(MODEL, folder, "cpu", "f32", False)
    assert f"{folder}: {MODEL} for cpu in " in capsys.readouterr().err
    compile_command.compile_model(MODEL, folder, "auto", "bf16", False, "h200")
    assert f"{folder}: {MODEL} for h200 in " in capsys.readouterr().err
    assert given == [{}, {"device": "h200"}]
