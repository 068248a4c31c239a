#!/usr/bin/env bash
# From nothing to a streamed answer: installs what is missing, builds, fetches a model, serves it and asks it.
# usage: scripts/run.sh [--keep] [PROMPT]
#   PROMPT   what to ask (default: "What is gravity?")
#   --keep   leave the server running
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

keep=no
if [ "${1:-}" = --keep ]; then
  keep=yes
  shift
fi
prompt="${1:-What is gravity?}"
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
python3 scripts/ask.py --port "$port" --server-pid "$server" "$prompt" || { keep=no; tail -n 20 "$log" >&2; exit 1; }
say "done after $((SECONDS - started)) s"
if [ "$keep" = yes ]; then
  echo "the server runs on as process $server: http://127.0.0.1:$port/"
else
  echo "to keep serving:  build/cpu-release/rigel serve $model --port $port"
fi
