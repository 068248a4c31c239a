#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests. The last line counts them: "N passed, N failed, N skipped".
# usage: scripts/test.sh [--quick | --full]
#   (none)    release build with every test; end-to-end checks on a real model with the native CPU variants and with the
#             device texts; AddressSanitizer on all unit tests; ThreadSanitizer on the rooms with threads; everything
#             compiled and linked for CUDA where nvcc is installed (host code hardly optimised)
#   --quick   the release build and its tests alone
#   --full    as (none), with all of the reference data, of the random request mixes and of the explored worlds, and the
#             CUDA build as released
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

mode="${1:-}"
case "$mode" in
  '' | --quick | --full) ;;
  *) echo "usage: $0 [--quick | --full]" >&2; exit 2 ;;
esac

started=$SECONDS
report=$(mktemp)
summary=$(mktemp)
trap 'rm -f "$report" "$summary"' EXIT

note() {  # LINE: said now and once more at the end, where a reader of a long log looks
  echo "$1" | tee -a "$summary"
}

# step NAME COMMAND...: a check that counts as one test.
step() {
  local name="$1" begin=$SECONDS
  shift
  say "$name"
  if "$@"; then
    echo "1 0 0" >>"$report"
    note "$name: passed ($((SECONDS - begin)) s)"
  else
    echo "0 1 0" >>"$report"
    note "FAILED $name ($((SECONDS - begin)) s)"
  fi
}

build() {  # PRESET [TARGET...]
  local preset="$1"
  shift
  cmake --preset "$preset" >/dev/null && cmake --build "build/$preset" ${@:+--target "$@"} -- -k 0
}

tests() {  # PRESET ARGUMENT...
  local preset="$1" begin=$SECONDS
  shift
  say "tests of $preset"
  python3 scripts/run_tests.py "build/$preset" --report "$report" --failures "$summary" "$@"
  note "tests of $preset: done ($((SECONDS - begin)) s)"
}

install_packages "${RIGEL_PACKAGES[@]}" "${RIGEL_TEST_PACKAGES[@]}" || exit 1
use_compiler_cache

if [ "$mode" = --full ]; then
  export RIGEL_MIXES=1000 RIGEL_EXPLORE=all
fi

step "rooms" python3 scripts/check_rooms.py
step "format" scripts/check_format.sh
step "tests of the SASS report" python3 profiling/tools/sass_test.py
step "build of cpu-release" build cpu-release
step "model" scripts/fetch_model.sh smollm2
tests cpu-release
step "host cost beside its yardstick" python3 profiling/tools/step_yardstick.py --rigel build/cpu-release/rigel --rows 1,8 --steps 20
step "end to end, native variants" python3 tests/golden/check_model.py --rigel build/cpu-release/rigel --part="${mode:-default}"

if [ "$mode" != --quick ]; then
  step "end to end, device texts" python3 tests/golden/check_model.py --rigel build/cpu-release/rigel --part="${mode:-default}" --device-texts
  step "build of asan" build asan test_{simt,tensor,kernels,graphs,engine,text,model,worker,server}
  tests asan
  step "build of tsan" build tsan test_{simt,tensor,kernels,worker}
  tests tsan --only simt,tensor,kernels,worker
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    if [ "$mode" = --full ]; then
      step "build of cuda-release" scripts/build_cuda.sh
    else
      step "build of cuda-check" scripts/build_cuda.sh --check
    fi
  else
    note "no nvcc: the CUDA build is skipped"
    echo "0 0 1" >>"$report"
  fi
fi

say "done after $((SECONDS - started)) s"
cat "$summary"
awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' "$report"
