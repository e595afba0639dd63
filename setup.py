"""What pyproject.toml cannot say: `migrations/` travels inside the package `service`."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["cbwk_client*", "cbwk_core*", "service*"]),
        "service.migrations",
        "service.migrations.versions",
    ],
    package_dir={"service.migrations": "migrations", "service.migrations.versions": "migrations/versions"},
)
