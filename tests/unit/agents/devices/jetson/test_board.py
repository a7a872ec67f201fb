"""The identification of boards, from device trees of all families."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.devices.jetson.board import Family, read_board
from tests.boards.fixtures import Mount, boards, mount

__all__ = ["boards", "mount"]


@pytest.mark.parametrize(
    ("name", "family", "jetpack"),
    [
        ("tx2", Family.TX2, "JetPack 4 (Jetson Linux 32.7.1)"),
        ("xavier-nx", Family.XAVIER, "JetPack 5 (Jetson Linux 35.4.1)"),
        ("orin-jp5", Family.ORIN, "JetPack 5 (Jetson Linux 35.4.1)"),
        ("orin", Family.ORIN, "JetPack 6 (Jetson Linux 36.4.0)"),
        ("orin-nano", Family.ORIN, "JetPack 7 (Jetson Linux 38.2.0)"),
        ("thor", Family.THOR, "JetPack 7 (Jetson Linux 38.2.0)"),
    ],
)
def test_a_board_is_known_by_its_chip_and_release(
    mount: Mount, name: str, family: Family, jetpack: str
) -> None:
    board = read_board(mount(name).root)
    assert board is not None
    assert (board.family, board.jetpack) == (family, jetpack)
    assert "\0" not in board.model


def test_a_server_is_not_a_board(mount: Mount) -> None:
    assert read_board(mount("xeon").root) is None


def tree(root: Path, compatible: str) -> Path:
    (root / "proc/device-tree").mkdir(parents=True, exist_ok=True)
    (root / "proc/device-tree/compatible").write_text(compatible)
    return root


def test_an_unknown_chip_is_still_a_board(tmp_path: Path) -> None:
    board = read_board(tree(tmp_path, "nvidia,p9999\0nvidia,tegra999\0"))
    assert board is not None
    assert (board.family, board.model) == (Family.UNKNOWN, "unknown Jetson")
    assert board.jetpack == "unknown Jetson Linux"


@pytest.mark.parametrize(("major", "jetpack"), [(36, "6"), (38, "7"), (39, "7.2")])
def test_a_supported_jetpack_is_named(tmp_path: Path, major: int, jetpack: str) -> None:
    """JetPack 7.2 is Jetson Linux 39: NVIDIA's archive."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text(f"# R{major} (release), REVISION: 2.0, GCID: 1")
    board = read_board(tree(tmp_path, "nvidia,tegra264\0"))
    assert board is not None and board.supported
    assert board.jetpack == f"JetPack {jetpack} (Jetson Linux {major}.2.0)"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_is_a_board_or_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    board = read_board(tree(tmp_path_factory.mktemp("tree"), text))
    assert (board is None) is ("nvidia,tegra" not in text or board is None)
