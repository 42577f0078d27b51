#!/bin/sh
# Installs holobind with its server into an environment of its own, without what only developers need, and compiles its
# kernels. The Dockerfile and docker/layout.sh use it.
#   docker/install.sh ENVIRONMENT [SOURCE]
set -eu
environment=$1
source=${2:-$(dirname "$0")/..}
"${PYTHON:-python3}" -m venv "$environment"
pip() { "$environment/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
# TORCH_INDEX: an index with builds of torch for the CPU, where the usual one has CUDA's.
pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
pip install --constraint "$source/constraints.txt" "$source[serve]"
packages=$(echo "$environment"/lib/python3*/site-packages)
# Headers, compilers' inputs and tests of torch and others: no program here reads them.
rm -rf "$packages"/torch/include "$packages"/torch/share "$packages"/torch/bin/protoc* "$packages"/torch/test \
  "$packages"/caffe2 "$packages"/functorch "$packages"/pip "$packages"/pip-* "$packages"/setuptools "$packages"/setuptools-* \
  "$packages"/mpl_toolkits/tests "$packages"/matplotlib/mpl-data/sample_data "$packages"/torch/lib/*.a
find "$packages" -type d \( -name tests -o -name testing_data \) -not -path '*/numpy/*' -prune -exec rm -rf {} +
find "$packages" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.hpp' \) -type f -delete
mkdir -p "$environment/kernels"
NUMBA_CACHE_DIR="$environment/kernels" "$environment/bin/holobind" warm
du -sm --apparent-size "$environment" | cut -f1
