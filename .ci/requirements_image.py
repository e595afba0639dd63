"""Writes requirements-image.txt: what the image installs, in the versions of constraints.txt, with digests."""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "requirements-image.txt"
PYTHON = "3.13"  # of the image
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(41, 16, -1)  # of the manylinux tags that Debian trixie accepts, which has glibc 2.41
HEAD = f"""\
# What the image installs, with digests: Python {PYTHON}, Linux, {" and ".join(MACHINES)}. To renew: make hashes
"""


def wanted() -> list[str]:
    """Return the requirements of the service and of its build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    direct = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["server"]
    return [*project["build-system"]["requires"], *direct]


def wheels(machine: str) -> dict[str, str]:
    """Return the digest of every wheel that one kind of machine needs, by name==version."""
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    options = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:", f"--python-version={PYTHON}"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        where = ["--target", folder, "--report", str(report), "-c", str(ROOT / "constraints.txt")]
        command = [sys.executable, "-m", "pip", "install", *options, *platforms, *where, *wanted()]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    pins = [f"{one['metadata']['name']}=={one['metadata']['version']}" for one in found]
    return dict(zip(pins, (one["download_info"]["archive_info"]["hashes"]["sha256"] for one in found), strict=True))


def main() -> None:
    """Write the file."""
    found = [wheels(machine) for machine in MACHINES]
    names = sorted({name for one in found for name in one}, key=str.lower)
    lines = []
    for name in names:
        digests = sorted({one[name] for one in found if name in one})
        lines.append(" \\\n    ".join([name, *(f"--hash=sha256:{digest}" for digest in digests)]))
    TARGET.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
