"""Assisted generation: its length is set, its steps are counted; with transformers if installed."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import assisted_generation
import httpx2
import pytest
from assisted_generation import AssistedGeneration, AssistedServer

from agents.target.side import Restartable, Side
from agents.workloads import open_workload
from tests.contracts.actuator import SettableContract
from tests.plugins.examples import documented
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import InvalidInput, Role

PROMPT, NEW = 5, 12


class Ids:
    """A sequence of this many tokens, as a stopping criterion sees it."""

    def __init__(self, tokens: int) -> None:
        self.shape = (1, tokens)

    def __getitem__(self, _: object) -> int:
        return 3


class Assistant:
    """A draft model, which is called once for each token it drafts."""

    def __init__(self) -> None:
        self.generation_config = SimpleNamespace(num_assistant_tokens=20)
        self.hook: Callable[..., None] = print

    def register_forward_hook(self, hook: Callable[..., None]) -> None:
        self.hook = hook


def generate(assistant: Assistant, arguments: dict[str, Any]) -> None:
    """Act like `model.generate`, with at most two accepted drafted tokens per step."""
    (criterion,) = arguments["stopping_criteria"]
    length = 0
    if "assistant_model" in arguments:
        length = arguments["assistant_model"].generation_config.num_assistant_tokens
    made = 0
    while made < NEW:
        for _ in range(length):
            assistant.hook(assistant, (), None)
        made += 1 + min(2, length)
        assert not criterion(Ids(PROMPT + made), None)


@contextmanager
def served(assisted: AssistedGeneration, answer: Callable[[], object]) -> Iterator[AssistedServer]:
    server = AssistedServer(assisted, answer, version="1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def assisted() -> AssistedGeneration:
    return AssistedGeneration(Assistant(), (0, 1, 4))


@pytest.fixture
def server(assisted: AssistedGeneration) -> Iterator[AssistedServer]:
    def answer() -> None:
        generate(assisted._assistant, assisted.arguments(PROMPT))

    with served(assisted, answer) as found:
        yield found


def url(server: AssistedServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def opened(server: AssistedServer, folder: Path) -> Side:
    return open_workload(url(server), seed=0, state_dir=folder, clock=Wall())


@pytest.fixture
def side(server: AssistedServer, tmp_path: Path) -> Iterator[Side]:
    found = opened(server, tmp_path)
    yield found
    found.close()


class TestKnobs(SettableContract):
    pass


def test_the_program_implements_the_http_contract(side: Side) -> None:
    assert side.space.knobs[0].role is Role.SPECULATION_LENGTH
    assert isinstance(side.actuator, Restartable) and side.actuator.incarnation()
    window = side.meter.start()
    while not window.read().totals["items"]:
        Wall().sleep(0.005)
    assert window.stop().totals["failed"] == 0.0


def test_steps_drafts_and_accepted_tokens_are_counted(
    server: AssistedServer, assisted: AssistedGeneration
) -> None:
    assert server.infer() == ""
    assert (assisted.tokens, assisted.steps, assisted.drafted) == (NEW, 0, 0)
    assert server.put({"speculation_length": 4}) == ""
    assert server.infer() == ""
    assert (assisted.tokens, assisted.steps, assisted.drafted) == (2 * NEW, 4, 16)
    assert assisted.accepted_by_position == [4, 4, 0, 0]


def test_transformers_changes_the_length_by_itself_no_more() -> None:
    assistant = Assistant()
    AssistedGeneration(assistant)
    config = assistant.generation_config
    assert config.num_assistant_tokens_schedule == "constant"
    assert config.assistant_confidence_threshold == 0.0


@pytest.mark.parametrize("lengths", [(1, 2), (0, -1), (0, 1, 1)])
def test_lengths_that_make_no_knob_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be one of the lengths"):
        AssistedGeneration(Assistant(), lengths)


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("PUT", "/knobs", b'{"speculation_length": 3}', 422),
        ("PUT", "/knobs", b'{"speculation_length": true}', 422),
        ("PUT", "/knobs", b'{"draft": "x"}', 422),
        ("PUT", "/knobs", b"[1]", 422),
        ("PUT", "/knobs", b"{", 400),
        ("PUT", "/stats", b"{}", 404),
        ("POST", "/knobs", b"{}", 404),
        ("GET", "/", b"", 404),
    ],
)
def test_an_invalid_request_is_refused_and_changes_nothing(
    server: AssistedServer, method: str, path: str, content: bytes, status: int
) -> None:
    answer = httpx2.request(method, url(server) + path, content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert server.assisted.length == 0


def test_a_failed_answer_is_reported_and_counted(assisted: AssistedGeneration) -> None:
    def answer() -> None:
        raise RuntimeError("no room")

    with served(assisted, answer) as server:
        refused = httpx2.post(f"{url(server)}/infer")
        assert (refused.status_code, server.stats()["failed"]) == (503, 1)
        assert refused.json()["error"]["message"] == "RuntimeError: no room"


def test_the_pages_file_measures_acceptance_and_proves_the_length(
    server: AssistedServer, tmp_path: Path
) -> None:
    file = tmp_path / "transformers.toml"
    text = documented("transformers").replace("http://127.0.0.1:8200", url(server))
    file.write_text(text.replace("values = [0, 1, 2, 3, 5, 8]", "values = [0, 1, 4]"))
    side = open_workload(f"service:{file}", seed=0, state_dir=tmp_path, clock=Wall())
    side.actuator.apply({"speculation_length": 4})
    window = side.meter.start()
    while window.read().totals["items"] < 10 * NEW:
        Wall().sleep(0.005)
    shown = window.stop().estimates
    assert shown["accepted_per_step"].mean == pytest.approx(2.0, rel=0.1)
    assert shown["accepted_at_3"].mean == 0.0
    side.close()


def test_the_program_imports_only_the_standard_library() -> None:
    tree = ast.parse(Path(str(assisted_generation.__file__)).read_text())
    modules = {
        n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names
    }
    modules |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= {*sys.stdlib_module_names}


def test_transformers_itself_drafts_as_many_tokens_as_it_is_set_to() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def model(layers: int) -> Any:  # noqa: ANN401
        config = transformers.GPT2Config(
            vocab_size=97, n_positions=256, n_embd=32, n_layer=layers, n_head=2
        )
        made = transformers.GPT2LMHeadModel(config).eval()
        made.generation_config.eos_token_id = made.generation_config.pad_token_id = None
        return made

    target = model(2)
    assistant = model(2)
    assistant.load_state_dict(target.state_dict())
    noise = model(1)
    prompt = torch.arange(PROMPT)[None]
    plain = target.generate(prompt, max_new_tokens=48, do_sample=False)
    for draft, accepted in ((assistant, 4.0), (noise, None)):
        assisted = AssistedGeneration(draft, (0, 4))
        assisted.length = 4
        given = assisted.arguments(prompt.shape[-1])
        out = target.generate(prompt, max_new_tokens=48, do_sample=False, **given)
        assert torch.equal(out, plain), "drafts do not change what is generated"
        assert assisted.tokens == 48
        assert assisted.drafted / assisted.steps == pytest.approx(4.0, rel=0.1)
        if accepted is not None:
            mean = sum(assisted.accepted_by_position) / assisted.steps
            assert mean == pytest.approx(accepted, rel=0.1)


def test_a_length_that_is_not_offered_is_refused_to_the_agent(side: Side) -> None:
    with pytest.raises(InvalidInput):
        side.actuator.apply({"speculation_length": 3})
