#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in under 8 minutes: device tests, golden checks, benchmarks; one table at the end.
# usage: scripts/gpu_check.sh [--model FILE] [--build FOLDER] [--bundle]
#   --model FILE   a GGUF file for the golden checks (if it is the reference's, SmolLM2-135M-Instruct.Q4_1.gguf) and the benchmark;
#                  default: that file in models/, if it is there
#   --build FOLDER a finished CUDA build; default: builds build/cuda-release
#   --bundle       makes build/gpu-bundle instead, at most 60 MB: copy it to a machine with a GPU, and run scripts/gpu_check.sh
#                  there. It needs a driver and python3, no toolkit and no build
# cuBLASLt is looked for at run time (toolkit or Python packages); where it is missing our own matrix products serve.
# Logs stay in build/gpu-check (in a bundle: results).
set -uo pipefail
cd "$(dirname "$0")/.."

BUDGET_S=470
BUNDLE_BYTES=$((60 * 1000 * 1000))
BUNDLE=build/gpu-bundle
DEVICE_ROOMS=(tensor kernels graphs engine worker)
BENCHMARKS=(bench_gemm bench_attention)
REFERENCE_MODEL=SmolLM2-135M-Instruct.Q4_1.gguf

model=""
build=""
bundle=no
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$(realpath "${2:?--model needs a file}") || exit 2; shift ;;
    --build) build="${2:?--build needs a folder}"; shift ;;
    --bundle) bundle=yes ;;
    *) echo "usage: $0 [--model FILE] [--build FOLDER] [--bundle]" >&2; exit 2 ;;
  esac
  shift
done

say() { printf '\n== %s\n' "$*" >&2; }

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1; }

# Shared libraries of the programs that a bare machine lacks; glibc and the driver are the machine's own.
copy_libraries() {  # TARGET PROGRAM...
  local target="$1" library
  shift
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libcuda)\.so' |
    while read -r library; do cp -L "$library" "$target/"; done
}

make_bundle() {
  local programs=(rigel "${DEVICE_ROOMS[@]/#/test_}" "${BENCHMARKS[@]}") program size
  rm -rf "$BUNDLE"
  mkdir -p "$BUNDLE"/{bin,lib,scripts,tests/data}
  for program in "${programs[@]}"; do
    strip -o "$BUNDLE/bin/$program" "$build/$program" || return 1
  done
  copy_libraries "$BUNDLE/lib" "${programs[@]/#/$build/}"
  cp -r tests/golden "$BUNDLE/tests/"
  rm -rf "$BUNDLE/tests/golden/__pycache__"
  cp -r tests/data/{tiny,smollm2} "$BUNDLE/tests/data/"
  cp scripts/{gpu_check.sh,run_tests.py} "$BUNDLE/scripts/"
  size=$(du -sb "$BUNDLE" | cut -f1)
  echo "$BUNDLE: $((size / 1000000)) MB of $((BUNDLE_BYTES / 1000000)) MB"
  du -sb "$BUNDLE"/{bin/*,lib,tests/data} | sort -rn | awk '{ printf "  %6.1f MB  %s\n", $1 / 1e6, $2 }'
  if [ "$size" -gt "$BUNDLE_BYTES" ]; then
    echo "the bundle is too large" >&2
    return 1
  fi
}

# Puts cuBLASLt of the Python packages on the loader's path; a toolkit's is there already or in its usual place.
find_libraries() {
  local folder
  for folder in $(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())' 2>/dev/null); do
    if [ -e "$folder/nvidia/cu13/lib/libcublasLt.so.13" ]; then
      LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/nvidia/cu13/lib"
    fi
  done
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64"
  if [ "$in_bundle" = yes ]; then
    LD_LIBRARY_PATH="$PWD/lib:$LD_LIBRARY_PATH"
  fi
}

# check NAME COMMAND...: a row of the table. Its remark is the last line that the command prints.
check() {
  local name="$1" begin=$SECONDS left=$((BUDGET_S - SECONDS)) log result
  shift
  log="$results/${name//[^a-zA-Z0-9]/_}.log"
  say "$name"
  if [ "$left" -le 0 ]; then
    printf '%s\tNOT RUN\t0\tno time left of %s s\n' "$name" "$BUDGET_S" >>"$table"
    return
  fi
  if timeout "$left" "$@" >"$log" 2>&1; then result=ok; else result=FAILED; tail -n 20 "$log" >&2; fi
  printf '%s\t%s\t%s\t%s\n' "$name" "$result" "$((SECONDS - begin))" "$(grep -v '^\s*$' "$log" | tail -n 1)" >>"$table"
}

benchmark() {
  check "${1#bench_}" "$programs/$1" --benchmark_min_time=0.05 --benchmark_counters_tabular=true
}

# bench throughput, with the decode rates as the last line.
throughput() {
  "$programs/rigel" bench throughput "$model" --concurrency 1,8,32,128 --input-len 128 --output-len 128 --json |
    tee "$results/throughput.json" | python3 -c '
import json, sys
runs = json.load(sys.stdin)["runs"]
print("decode tokens/s", ", ".join("{concurrency} together: {decode_tokens_per_s:.0f}".format(**run) for run in runs))'
}

in_bundle=no
if [ -x bin/rigel ]; then in_bundle=yes; fi
if [ "$bundle" = no ] && ! has_gpu; then
  echo "gpu_check: this machine has no NVIDIA GPU; nothing was checked" >&2
  exit 1
fi
if [ "$in_bundle" = yes ]; then
  if [ "$bundle" = yes ]; then
    echo "gpu_check: a bundle makes no bundle" >&2
    exit 2
  fi
elif [ -z "$build" ]; then
  build=build/cuda-release
  say "building for CUDA"
  scripts/build_cuda.sh || exit 1
fi
if [ "$bundle" = yes ]; then
  make_bundle
  exit
fi

SECONDS=0  # the build has its own time
programs="$build" results=build/gpu-check
if [ "$in_bundle" = yes ]; then programs=bin results=results; fi
mkdir -p "$results"
table="$results/table.tsv"
: >"$table"
find_libraries
if [ -z "$model" ] && [ -f "models/$REFERENCE_MODEL" ]; then model="$PWD/models/$REFERENCE_MODEL"; fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null

for room in "${DEVICE_ROOMS[@]}"; do
  # OneStep reads the sources, which a bundle has not.
  check "tests of $room" python3 scripts/run_tests.py "$programs" --only "$room" --jobs 1 --filter='-OneStep.*'
done
check "golden, tiny models" python3 tests/golden/check_model.py --rigel "$programs/rigel" --part=--tiny --gpu
if [ "$(basename "$model")" = "$REFERENCE_MODEL" ]; then
  check "golden, $REFERENCE_MODEL" python3 tests/golden/check_model.py --rigel "$programs/rigel" --model "$model" --gpu
fi
if [ -n "$model" ]; then
  export -f throughput
  export programs model results
  check "throughput" bash -o pipefail -c throughput
fi
for program in "${BENCHMARKS[@]}"; do
  benchmark "$program"
done

say "after $SECONDS s; logs are in $results"
awk -F '\t' '{ printf "%-45s %-8s %5s s  %s\n", $1, $2, $3, $4; bad += $2 != "ok" } END { exit bad > 0 }' "$table"
