from hypothesis import settings

# Benchmarks import packages that only `make bench` installs; doctest collection would import them.
collect_ignore_glob = ["benchmarks/bench_*.py"]

# A busy machine is no failure.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
