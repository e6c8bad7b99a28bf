# The service on a CPU; see docs/deploy.md.
#   docker build -t proxyhash .
#   docker run -p 127.0.0.1:8000:8000 -v ./photos.index:/index proxyhash

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
RUN python -m venv /opt/proxyhash
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY recipes recipes
COPY src src
# onnxruntime encodes images; without an image search, leave it out. Models without an ONNX file need torch (train).
RUN /opt/proxyhash/bin/pip install --constraint constraints.txt '.[serve,onnx,milvus]'

FROM python:3.11-slim
COPY --from=build /opt/proxyhash /opt/proxyhash
# A user without rights. /cache has compiled kernels, and the models of indexes on Milvus.
RUN install -d -o 10001 -g 10001 -m 700 /index /cache
ENV PATH=/opt/proxyhash/bin:$PATH HOME=/cache PROXYHASH_CACHE=/cache
USER 10001:10001
VOLUME ["/index", "/cache"]
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=8)"]
ENTRYPOINT ["proxyhash", "serve", "--host", "0.0.0.0"]
CMD ["/index"]
