#!/bin/sh
# Installs holobind with its server into an environment of its own, without what only developers need, and compiles its
# kernels. The Dockerfile uses it; so can docker/layout.sh.
#   docker/install.sh ENVIRONMENT [SOURCE]
set -eu
environment=$1
source=${2:-$(dirname "$0")/..}
"${PYTHON:-python3}" -m venv "$environment"
pip() { "$environment/bin/python" -m pip --disable-pip-version-check --quiet install --no-compile "$@"; }
# TORCH_INDEX: an index with builds of torch for the CPU, where the usual one has CUDA's.
pip ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
pip --constraint "$source/constraints.txt" "$source[serve]"
sh "$(dirname "$0")/slim.sh" "$environment"
