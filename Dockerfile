# Two steps, so that the image has the installed package and nothing it was built with.
FROM python:3.13-slim-trixie AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/cbwk
COPY requirements-image.txt ./
RUN python -m pip --python /opt/cbwk/bin/python install --no-cache-dir --disable-pip-version-check --no-compile --no-deps \
    --require-hashes -r requirements-image.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY cbwk_client ./cbwk_client
COPY cbwk_core ./cbwk_core
COPY service ./service
COPY migrations ./migrations
RUN python -m pip --python /opt/cbwk/bin/python install --no-cache-dir --disable-pip-version-check --no-compile --no-deps \
    --no-index --no-build-isolation .
# Not needed to serve: what built the package, tests, all of plotly but its script, and parts of scipy.
RUN cd /opt/cbwk/lib/python3.13/site-packages \
    && rm -rf setuptools* _distutils_hack distutils-precedence.pth \
    && find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
    && find plotly -type f ! -path plotly/__init__.py ! -name plotly.min.js -delete \
    && find plotly -type d -empty -delete \
    && cd scipy \
    && rm -rf cluster datasets differentiate fftpack integrate interpolate io misc ndimage odr signal stats
# Bytecode of what a start imports, and of nothing else: the user of the image cannot write it.
RUN /opt/cbwk/bin/python -I -c "import psycopg, service.server, sqlalchemy.dialects.postgresql.psycopg; \
    from service.__main__ import main; main(['migrate', '--database-url', 'sqlite:///start.db'])"

FROM python:3.13-slim-trixie
COPY --from=build /opt/cbwk /opt/cbwk
# A folder of its own, so that a volume that is mounted there belongs to the user the service runs as.
RUN groupadd --system --gid 10001 cbwk \
    && useradd --system --uid 10001 --gid 10001 --no-create-home cbwk \
    && install --directory --owner 10001 --group 10001 --mode 700 /data
# By number: Kubernetes' runAsNonRoot cannot check a name.
USER 10001:10001
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
# By http.client, which uses no proxy: HTTP_PROXY is for the world outside.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; \
        asked = http.client.HTTPConnection('127.0.0.1', int(os.environ['CBWK_PORT']), timeout=2); \
        asked.request('GET', '/readyz'); sys.exit(asked.getresponse().status != 200)"]
# One process: it stops in good order on SIGTERM.
CMD ["cbwk", "serve"]
