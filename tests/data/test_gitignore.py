"""`.gitignore` is followed as git follows it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linnet.data.corpus import find_corpus
from linnet.data.gitignore import GitIgnore
from tests.data.conftest import story

PATHS = [
    "a",
    "b.log",
    "build/a",
    "build/sub/b.log",
    "src/a",
    "src/build/c",
    "src/x y",
    "src/deep/er/a.log",
    "[a]",
    "#a",
]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def kept_by_us(root: Path) -> list[str]:
    return sorted(str(file.path.relative_to(root)) for file in find_corpus(root).files)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in PATHS:
        write(root / path, "text\n")
    return root


def kept_by_git(root: Path) -> list[str]:
    command = [
        "git",
        "-C",
        str(root),
        "-c",
        "core.excludesFile=/dev/null",
        "ls-files",
        "-z",
        "-co",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return sorted(path for path in listed if path and not path.endswith(".gitignore"))


@pytest.mark.parametrize(
    "rules",
    [
        "*.log",
        "*.log\n!b.log",
        "build/",
        "/build/",
        "build/*\n!build/sub/",
        "src/**/a",
        "**/a",
        "src/**",
        "/a\n\n# a comment\n\\#",
        "\\[a]",
        "[[]a]",
        "src/x y   ",
        "src/x\\ y",
        "*\n!*/\n!src/**",
        "src/*/a\n?",
        "[!a-c]*",
        "**/deep/**",
        "src/deep/er/*.lo[a-g]",
        "a*****b*****c\n" * 3,
        "!a\n\\",
    ],
)
def test_rules_mean_what_they_mean_to_git(repository: Path, rules: str) -> None:
    write(repository / ".gitignore", rules)
    expected = kept_by_git(repository)
    if expected:
        assert kept_by_us(repository) == expected


_part = st.text(st.sampled_from("ab.*?[]!-/\\x ld"), min_size=1, max_size=9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_part, min_size=1, max_size=4), st.lists(_part, max_size=2))
def test_any_rules_mean_what_they_mean_to_git(repository: Path, rules: list[str], inner: list[str]) -> None:
    write(repository / ".gitignore", "\n".join(rules))
    write(repository / "src" / ".gitignore", "\n".join(inner))
    try:
        expected = kept_by_git(repository)
        if expected:
            assert kept_by_us(repository) == expected
    finally:
        (repository / "src" / ".gitignore").unlink()


def test_what_is_ignored_is_told_a_folder_as_one(tmp_path: Path) -> None:
    for name in ("keep.txt", "node_modules/a/x.txt", "node_modules/b/y.txt", "out.log"):
        write(tmp_path / name, story(1))
    write(tmp_path / ".gitignore", "node_modules\n*.log\n")
    corpus = find_corpus(tmp_path)
    assert [file.path.name for file in corpus.files] == ["keep.txt"]
    assert corpus.left_out == ("node_modules/: ignored by .gitignore", "out.log: ignored by .gitignore")
    assert len(find_corpus(str(tmp_path / "**" / "*.*")).files) == 4  # what was named is read


def test_a_folder_that_is_ignored_as_a_whole_is_read_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.txt", story(1))
    write(tmp_path / "data" / ".gitignore", "*\n")
    write(tmp_path / ".gitignore", "data/\n")
    corpus = find_corpus(tmp_path / "data")
    assert len(corpus.files) == 1
    assert corpus.left_out == (".gitignore: not followed, since it leaves nothing",)


def test_a_hostile_rule_takes_no_time(tmp_path: Path) -> None:
    name = "a" * 200
    write(tmp_path / name, "text")
    write(
        tmp_path / ".gitignore",
        "\n".join(["*a" * 100 + "b", "/".join(["**"] * 200) + "/b", "[" * 5000, "*?" * 90 + "b"]),
    )
    assert not GitIgnore(tmp_path).ignores(tmp_path / name)
