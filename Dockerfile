# The service on a CPU, as a user without rights; it writes to /tmp alone, so the root file system can be read-only:
#   docker build -t reprogram . && docker run --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -v ./runs:/runs:ro reprogram
FROM python:3.11-slim AS build
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/reprogram
# torch first and by its exact version, so that nothing else brings another build of it; set PIP_INDEX_URL to an index with
# CPU wheels for an image of a third of the size
ARG PIP_INDEX_URL
RUN /opt/reprogram/bin/pip install --no-cache-dir --only-binary :all: -c constraints.txt torch torchvision
RUN /opt/reprogram/bin/pip install --no-cache-dir -c constraints.txt '.[models,serve]'

FROM python:3.11-slim
COPY --from=build /opt/reprogram /opt/reprogram
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin reprogram
ENV PATH=/opt/reprogram/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 HOME=/tmp \
    REPROGRAM_CACHE=/tmp/reprogram
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-m", "reprogram.serve.health", "http://127.0.0.1:8000"]
ENTRYPOINT ["reprogram", "serve"]
CMD ["/runs", "--host", "0.0.0.0", "--port", "8000"]
