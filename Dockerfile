# One image for every role: the command says which (engine, worker, topics, ...).
FROM python:3.11-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY perdure perdure
COPY schemas schemas
COPY streams streams
COPY connectors connectors
RUN python -m pip install --no-cache-dir --constraint constraints.txt .

# /app: tools and agents, the ones of `perdure init` until others are mounted there.
RUN useradd --uid 10001 --create-home perdure \
 && perdure init /app \
 && mkdir /data /blobs \
 && chown -R perdure /app /data /blobs

USER perdure
WORKDIR /app
ENV PERDURE_DATA_DIR=/data \
    PERDURE_BLOB_URL=/blobs \
    PYTHONUNBUFFERED=1
ENTRYPOINT ["perdure"]
CMD ["--help"]
