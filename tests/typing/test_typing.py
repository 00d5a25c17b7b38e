"""The types that users see: basedpyright and mypy accept the right calls, and refuse each of the wrong ones.

basedpyright runs in its `standard` mode, which is what pyright does unless it is told otherwise.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
RIGHT = Path(__file__).with_name("right.py")
WRONG = Path(__file__).with_name("wrong_calls.py")

Errors = dict[tuple[str, int], list[str]]
"""What a type checker reported, by file and line."""


def basedpyright(folder: Path) -> Errors:
    config = folder / "pyrightconfig.json"
    config.write_text(
        json.dumps(
            {
                "include": [str(RIGHT), str(WRONG)],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "standard",
                "pythonVersion": "3.11",
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", config, "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, report["summary"]
    errors: Errors = {}
    for found in report["generalDiagnostics"]:
        if found["severity"] == "error":
            place = Path(found["file"]).name, found["range"]["start"]["line"] + 1
            errors.setdefault(place, []).append(found["message"])
    return errors


def mypy(folder: Path) -> Errors:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent"),
            *("--python-version=3.11", "--hide-error-context", "--no-error-summary", "--no-pretty"),
            *("--warn-unreachable", f"--cache-dir={folder / 'mypy'}", str(RIGHT), str(WRONG)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors: Errors = {}
    for line in done.stdout.splitlines():
        found = re.match(r"(.+?):(\d+): error: (.*)", line)
        if found:
            errors.setdefault((Path(found[1]).name, int(found[2])), []).append(found[3])
    return errors


def marked() -> set[tuple[str, int]]:
    lines = enumerate(WRONG.read_text().splitlines(), start=1)
    return {(WRONG.name, number) for number, line in lines if "# wrong: " in line}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("checker", [basedpyright, mypy])
def test_right_calls_are_accepted_and_each_wrong_one_is_refused(
    checker: Callable[[Path], Errors], tmp_path: Path
) -> None:
    errors = checker(tmp_path)
    assert len(marked()) > 25
    assert {place: errors[place] for place in errors.keys() - marked()} == {}
    assert sorted(marked() - errors.keys()) == []
