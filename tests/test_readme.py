import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_readme_has_an_example():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs_and_prints_its_result(example, capsys):
    exec(compile(example, README.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_every_file_the_readme_points_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (README.parent / target).is_file(), target
