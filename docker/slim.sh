#!/bin/sh
# Removes from an environment what no server reads: headers, inputs of compilers, tests, debug symbols, pip, and some
# packages. Then it compiles the kernels of holobind, and the Python files that a server imports, no others.
# Prints the size in MB.
#   docker/slim.sh ENVIRONMENT
set -eu
environment=$1
packages=$(echo "$environment"/lib/python3*/site-packages)
rm -rf "$packages"/torch/include "$packages"/torch/share "$packages"/torch/test \
  "$packages"/torch/lib/*test*.so "$packages"/torch/lib/*.a "$packages"/pip "$packages"/pip-* "$packages"/setuptools "$packages"/setuptools-* \
  "$packages"/_distutils_hack "$packages"/distutils-precedence.pth
find "$packages/torch/bin" -mindepth 1 -maxdepth 1 ! -name torch_shm_manager -exec rm -rf {} + # tests and compilers
# Plots; symbolic shapes of torch.compile; downloads from a hub. A server imports none of them.
for name in matplotlib mpl_toolkits fontTools fonttools PIL pillow kiwisolver contourpy sympy mpmath networkx hf_xet; do
  rm -rf "$packages/$name" "$packages/$name".libs "$packages/$name"-*
done
find "$packages" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
find "$packages" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.hpp' \) -delete
if command -v strip > /dev/null; then  # two libraries alone: those that were patched for a wheel do not survive it
  strip --strip-unneeded "$packages"/torch/lib/libtorch_cpu.so "$packages"/llvmlite/binding/*.so
fi
mkdir -p "$environment/kernels"
NUMBA_CACHE_DIR="$environment/kernels" "$environment/bin/holobind" warm > /dev/null
PYTHONDONTWRITEBYTECODE= "$environment/bin/python" -c 'import holobind.cli.serve, holobind.serve.server, holobind.serve.app'
du -sm --apparent-size "$environment" | cut -f1
