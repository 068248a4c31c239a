#!/usr/bin/env bash
# Compiles and links everything for CUDA (sm_90) with warnings as errors, and checks that no kernel spills registers.
# usage: scripts/build_cuda.sh [--check]
#   (none)    build/cuda-release, to be run
#   --check   build/cuda-check: kernels as in the release, host code hardly optimised, tests compiled but not linked
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null; then
  export PATH="$PATH:/usr/local/cuda/bin"
fi
case "${1:-}" in
  '') build=build/cuda-release; options=() ;;
  --check)
    build=build/cuda-check
    # Not -O0: of all that headers bring it keeps every function, which takes longer than to drop those that are inlined.
    options=(-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-Og -DRIGEL_TESTS_SYNTAX_ONLY=ON)
    ;;
  *) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac
log=$build/build.log
mkdir -p "$build"
cmake --preset cuda-release -B "$build" "${options[@]}" >/dev/null
cmake --build "$build" -- -v >"$log" 2>&1 || {
  grep -E -A5 'error|FAILED' "$log" | head -60
  exit 1
}
# ptxas reports each kernel's spills; a build that compiled nothing reports none, and was checked when it compiled.
if grep -E '[1-9][0-9]* bytes spill' "$log"; then
  echo "kernels spill registers" >&2
  exit 1
fi
echo "compiled for CUDA: $(grep -c 'Compiling entry function' "$log" || true) kernels, no spills"
