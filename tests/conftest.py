from hypothesis import settings

from tests.documents import reading_server  # noqa: F401 - a fixture is found by its name

# Benchmarks and comparisons import packages that `make setup` does not install; doctest collection would import them.
collect_ignore_glob = ["benchmarks/bench_*.py", "core/evaluation/agree_with_*.py"]

# A busy machine is no failure.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
