# Two steps, so that the image has the installed package and nothing it was built with.
FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /opt/cbwk
COPY constraints.txt pyproject.toml setup.py README.md LICENSE ./
COPY cbwk_client ./cbwk_client
COPY cbwk_core ./cbwk_core
COPY service ./service
COPY migrations ./migrations
RUN /opt/cbwk/bin/python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[server]'

FROM python:3.13-slim
COPY --from=build /opt/cbwk /opt/cbwk
# A folder of its own, so that a volume that is mounted there belongs to the user the service runs as.
RUN useradd --system --uid 10001 --no-create-home cbwk && mkdir /data && chown cbwk /data
USER cbwk
WORKDIR /data
VOLUME /data
# Small matrices are slower on several threads, and the sums of one thread are the same every time.
ENV PATH=/opt/cbwk/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    OMP_NUM_THREADS=1 \
    CBWK_HOST=0.0.0.0 \
    CBWK_PORT=8000 \
    CBWK_DATABASE_URL=sqlite:////data/cbwk.db
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", \
        "import os, urllib.request as web; web.urlopen(f'http://127.0.0.1:{os.environ[\"CBWK_PORT\"]}/readyz', timeout=2)"]
# One process: it stops in good order on SIGTERM.
CMD ["cbwk", "serve"]
