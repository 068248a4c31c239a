#!/usr/bin/env bash
# From nothing to a streamed answer: installs what is missing, builds, fetches a model, serves it and asks it.
# usage: scripts/run.sh [--keep] [PROMPT]
#   PROMPT   what to ask (default: "What is gravity?"); behind -- it may begin with a dash
#   --keep   leave the server running
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

usage() { sed -n 's/^# \?//; 2,5p' scripts/run.sh; }
keep=no
prompts=()
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) keep=yes ;;
    -h | --help) usage; exit 0 ;;
    --) shift; prompts+=("$@"); break ;;
    -*) echo "run.sh: there is no option $1" >&2; usage >&2; exit 2 ;;
    *) prompts+=("$1") ;;
  esac
  shift
done
if [ ${#prompts[@]} -gt 1 ]; then
  echo "run.sh: one prompt, got ${#prompts[@]}: quote it" >&2
  exit 2
fi
prompt="${prompts[0]:-What is gravity?}"
port="${RIGEL_PORT:-8000}"
started=$SECONDS

install_packages "${RIGEL_PACKAGES[@]}"
use_compiler_cache
say "building (after $((SECONDS - started)) s)"
cmake --preset cpu-release >/dev/null
cmake --build build/cpu-release --target rigel
say "model (after $((SECONDS - started)) s)"
model=$(scripts/fetch_model.sh smollm2 | tail -n 1)

say "serving on port $port (after $((SECONDS - started)) s)"
log=build/cpu-release/serve.log
build/cpu-release/rigel serve "$model" --port "$port" >"$log" 2>&1 &
server=$!
stop_server() { if [ "$keep" = no ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi; }
trap stop_server EXIT
python3 scripts/ask.py --port "$port" --server-pid "$server" -- "$prompt" || { keep=no; tail -n 20 "$log" >&2; exit 1; }
say "done after $((SECONDS - started)) s"
if [ "$keep" = yes ]; then
  echo "the server runs on as process $server: http://127.0.0.1:$port/"
else
  echo "to keep serving:  build/cpu-release/rigel serve $model --port $port"
fi
