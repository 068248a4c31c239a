#!/usr/bin/env python3
"""Rigel beside llama.cpp on this machine: the same model, prompts, lengths and threads, measured by turns in one run.

usage: compare_llama_cpp.py --rigel PROGRAM --batched-bench PROGRAM --bench-gemm PROGRAM --model FILE.gguf
                            [--concurrency 1,8,32] [--threads N] [--rounds 3]

--batched-bench is llama.cpp's llama-batched-bench. llama.cpp computes with the file's own quantisation; give --bf16-model
(the same model as llama-quantize --allow-requantize makes it) for its figures in the arithmetic that Rigel uses. The best
round of each counts. --bench-gemm measures the memory's read bandwidth, against which the decode step of one row is held.
Prints a Markdown table for RESULTS.md.
"""
import argparse
import json
import os
import subprocess

INPUT_LEN = OUTPUT_LEN = 128


def run(command, environment=None):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env=environment).stdout


def measure_rigel(options):
    """{concurrency: (prefill, decode) tokens/s}"""
    out = run([options.rigel, "bench", "throughput", options.model, "--json", "--threads", str(options.threads),
               "--concurrency", options.concurrency, "--input-len", str(INPUT_LEN), "--output-len", str(OUTPUT_LEN)])
    return {r["concurrency"]: (r["prefill_tokens_per_s"], r["decode_tokens_per_s"]) for r in json.loads(out)["runs"]}


def measure_llama(options, model):
    most = max(int(count) for count in options.concurrency.split(","))
    out = run([options.batched_bench, "-m", model, "-c", str(most * (INPUT_LEN + OUTPUT_LEN)), "-b", "2048", "-ub", "512",
               "-npp", str(INPUT_LEN), "-ntg", str(OUTPUT_LEN), "-npl", options.concurrency, "-t", str(options.threads),
               "-tb", str(options.threads), "--output-format", "jsonl"])
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {line["pl"]: (line["speed_pp"], line["speed_tg"]) for line in lines}


def read_bandwidth(options):
    """Bytes a second that all threads read of plain memory."""
    out = run([options.bench_gemm, f"--benchmark_filter=read_memory/threads:{options.threads}/",
               "--benchmark_format=json"])
    return max(run["bytes_per_second"] for run in json.loads(out)["benchmarks"])


def weight_bytes(options):
    memory = json.loads(run([options.rigel, "inspect", options.model, "--json"]))["memory_bytes"]
    return memory["weights"]


def best(rounds):
    return {key: tuple(max(values) for values in zip(*(r[key] for r in rounds))) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("rigel", "batched-bench", "bench-gemm", "model"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--bf16-model")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    engines = {"Rigel, bfloat16": lambda: measure_rigel(options),
               "llama.cpp, the file's types": lambda: measure_llama(options, options.model)}
    if options.bf16_model:
        engines["llama.cpp, bfloat16"] = lambda: measure_llama(options, options.bf16_model)
    rounds = {name: [] for name in engines}
    bandwidths = []
    for _ in range(options.rounds):
        bandwidths.append(read_bandwidth(options))
        for name, measure in engines.items():
            rounds[name].append(measure())
    results = {name: best(measured) for name, measured in rounds.items()}

    print("| concurrent | " + " | ".join(f"{name}: prefill | decode" for name in engines) + " |")
    print("|---:" * (1 + 2 * len(engines)) + "|")
    for count in (int(count) for count in options.concurrency.split(",")):
        print(f"| {count} | " + " | ".join(f"{r[count][0]:.0f} | {r[count][1]:.1f}" for r in results.values()) + " |")
    weights, bandwidth = weight_bytes(options), max(bandwidths)
    if 1 in results["Rigel, bfloat16"]:
        step_s, read_s = 1 / results["Rigel, bfloat16"][1][1], weights / bandwidth
        print(f"\nRead bandwidth {bandwidth / 1e9:.1f} GB/s; {weights / 1e6:.0f} MB of weights are read in {read_s * 1e3:.1f} ms; "
              f"a decode step of one row takes {step_s * 1e3:.1f} ms, {step_s / read_s:.2f} times that.")


if __name__ == "__main__":
    main()
