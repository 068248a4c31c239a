#!/usr/bin/env bash
# Compiles and links everything for CUDA (sm_90) with warnings as errors, and checks that no kernel spills registers.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null; then
  export PATH="$PATH:/usr/local/cuda/bin"
fi
log=build/cuda-release/build.log
mkdir -p build/cuda-release
cmake --preset cuda-release >/dev/null
cmake --build build/cuda-release -- -v >"$log" 2>&1 || {
  grep -E -A5 'error|FAILED' "$log" | head -60
  exit 1
}
# ptxas reports each kernel's spills; a build that compiled nothing reports none, and was checked when it compiled.
if grep -E '[1-9][0-9]* bytes spill' "$log"; then
  echo "kernels spill registers" >&2
  exit 1
fi
echo "compiled for CUDA: $(grep -c 'Compiling entry function' "$log" || true) kernels, no spills"
