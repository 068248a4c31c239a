#!/usr/bin/env python3
"""Waits for a server and streams one chat answer to the terminal, with tokens per second at the end.

usage: ask.py [--port 8000] [--max-tokens 128] [--server-pid PID] PROMPT
"""
import argparse
import http.client
import json
import os
import sys
import time

START_TIMEOUT_S = 120


def wait_until_ready(port, server_pid):
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server_pid:
            try:
                os.kill(server_pid, 0)
            except ProcessLookupError:
                sys.exit("the server ended before it was ready")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"the server was not ready after {START_TIMEOUT_S} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--server-pid", type=int)
    options = parser.parse_args()

    wait_until_ready(options.port, options.server_pid)
    body = {"messages": [{"role": "user", "content": options.prompt}], "max_tokens": options.max_tokens,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=600)
    print(f"> {options.prompt}\n", flush=True)
    begin = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
    first_at, usage = None, None
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[len(b"data: "):])
        usage = event.get("usage") or usage
        for choice in event.get("choices", []):
            text = choice["delta"].get("content")
            if text:
                first_at = first_at or time.monotonic()
                print(text, end="", flush=True)
    end = time.monotonic()
    if first_at is None or usage is None:
        sys.exit("the answer was empty")
    tokens = usage["completion_tokens"]
    rate = (tokens - 1) / (end - first_at) if tokens > 1 and end > first_at else 0.0
    print(f"\n\n{tokens} tokens, {rate:.1f} tokens/s, first after {1000 * (first_at - begin):.0f} ms")


if __name__ == "__main__":
    main()
