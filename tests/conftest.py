from hypothesis import settings

from tests.documents import reading_server  # noqa: F401 - pytest finds a fixture by name

# Doctest collection would import these files, and they need packages that `make setup` does not install.
collect_ignore_glob = ["benchmarks/bench_*.py", "core/evaluation/agree_with_*.py"]

# A slow machine must not fail a test.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
