#!/usr/bin/env python3
"""The bookkeeping of a decode step in plain Python, as a yardstick for `rigel bench step`.

Written the way such engines are written in Python: an object a request, dictionaries by request and by name, a loop over the
requests in every stage. It decides, counts and builds what Rigel's worker does in a steady decode step (schedule, inputs, loop
counters, declaration, pages, columns of positions and sampling, stop check, routing to an output message), enqueues no kernel
and knows no tensor library; copying of page tables, which Rigel avoids, is left out here too. So the ratio says what the C++
saves of the same work, not what a GPU framework costs on top.

usage: step_yardstick.py [--rows 1,8,64] [--context 1024] [--steps 100] [--rigel PROGRAM] [--json]
With --rigel, `PROGRAM bench step` runs beside it and the ratio is printed.
"""
import argparse
import dataclasses
import gc
import json
import statistics
import subprocess
import time

PAGE_SIZE = 16
NODE, WALK, LOOP, TOKEN = "LLM", "decode", "decode_loop", "new_token"


@dataclasses.dataclass
class SamplingParams:
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    stop_token_ids: list = dataclasses.field(default_factory=list)
    logprobs: int = -1


@dataclasses.dataclass
class Request:
    rid: str
    prompt_len: int
    max_tokens: int
    seed: int
    sampling: SamplingParams
    tokens: list
    pages: list
    stored_length: int
    position: int
    loop_counters: dict
    phase: str = "decode"
    num_pending: int = 0
    last_token_time: float = 0.0


@dataclasses.dataclass
class NodeInputs:
    walk: str
    input_seq_len: int = 1
    tensor_inputs: dict = dataclasses.field(default_factory=dict)
    kwargs: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class InputMetadata:
    loop_counters: dict
    stream_chunks: dict


@dataclasses.dataclass
class Segment:
    rid: str
    label: str
    span: int


class Engine:
    def __init__(self, num_rows, context):
        self.free_pages = list(range(1 << 22))
        self.requests = {}
        for row in range(num_rows):
            length = max(1, context - row % PAGE_SIZE)
            pages = [self.free_pages.pop() for _ in range(-(-length // PAGE_SIZE))]
            rid = f"request-{row}"
            self.requests[rid] = Request(rid, length, 1 << 30, row, SamplingParams(), [1] * length, pages, length,
                                         length, {LOOP: 0})
        self.running = list(self.requests)
        self.in_flight = set()
        self.latencies = []
        self.num_tokens = 0

    def step(self):
        rids = self.schedule()
        inputs, metadata = self.build(rids)
        declared = self.declare(rids, inputs, metadata)
        self.admit(declared)
        columns = self.plan(rids, declared, metadata)
        rows = {rid: 0 for rid in rids}  # the device's answer: a token a request
        self.commit(declared)
        stops = self.check_stop(rids, rows)
        return self.route(rids, rows, stops), columns

    def schedule(self):
        queues = {}
        for rid in self.running:
            request = self.requests[rid]
            if request.phase == "decode" and len(request.tokens) - request.prompt_len < request.max_tokens:
                queues.setdefault((NODE, WALK), []).append(rid)
        rids = queues[(NODE, WALK)]
        self.in_flight.update(rids)
        return rids

    def build(self, rids):
        inputs, metadata = {}, {}
        for rid in rids:
            request = self.requests[rid]
            inputs[rid] = NodeInputs(WALK)
            metadata[rid] = InputMetadata({name: count + 1 for name, count in request.loop_counters.items()}, {})
            request.num_pending += 1
        return inputs, metadata

    def declare(self, rids, inputs, metadata):
        segments, lanes = [], []
        for index, rid in enumerate(rids):
            segments.append(Segment(rid, "main", inputs[rid].input_seq_len))
            lanes.append({"rid": rid, "num_generated": metadata[rid].loop_counters[LOOP], "token_index": index})
        return {"kv": {"segments": segments, "commit": True}, "positions": {"segments": segments},
                "attention": {"causal": True}, "sampler": {"lanes": lanes}}

    def admit(self, declared):
        for segment in declared["kv"]["segments"]:
            request = self.requests[segment.rid]
            wanted = -(-(request.stored_length + segment.span) // PAGE_SIZE)
            while len(request.pages) < wanted:
                request.pages.append(self.free_pages.pop())

    def plan(self, rids, declared, metadata):
        columns = {name: [] for name in ("positions", "rows", "token_ids", "page_updates", "temperature", "top_k", "top_p",
                                         "min_p", "seeds", "offsets", "repetition", "logprobs")}
        for row, segment in enumerate(declared["positions"]["segments"]):
            request = self.requests[segment.rid]
            columns["positions"].append(request.position)
            columns["rows"].append(row)
            columns["token_ids"].append(-1)
            if request.stored_length % PAGE_SIZE == 0:
                columns["page_updates"].append((row, len(request.pages) - 1, request.pages[-1]))
        for lane in declared["sampler"]["lanes"]:
            request = self.requests[lane["rid"]]
            sampling = request.sampling
            columns["temperature"].append(sampling.temperature)
            columns["top_k"].append(sampling.top_k)
            columns["top_p"].append(sampling.top_p)
            columns["min_p"].append(sampling.min_p)
            columns["seeds"].append(request.seed)
            columns["offsets"].append(request.prompt_len + lane["num_generated"])
            columns["repetition"].append(sampling.repetition_penalty)
            columns["logprobs"].append(sampling.logprobs)
        return columns

    def commit(self, declared):
        for segment in declared["kv"]["segments"]:
            request = self.requests[segment.rid]
            request.stored_length += segment.span
            request.position += segment.span

    def check_stop(self, rids, rows):
        stops = {}
        for rid in rids:
            request = self.requests[rid]
            num_generated = len(request.tokens) - request.prompt_len + 1
            token = rows[rid]
            if (num_generated > request.sampling.min_tokens and token in request.sampling.stop_token_ids
                    or num_generated >= request.max_tokens):
                stops[rid] = {LOOP}
        return stops

    def route(self, rids, rows, stops):
        message = []
        now = time.monotonic()
        for rid in rids:
            request = self.requests[rid]
            token = rows[rid]
            request.tokens.append(token)
            request.num_pending -= 1
            for name in request.loop_counters:
                request.loop_counters[name] += 1
            self.latencies.append(now - request.last_token_time)
            request.last_token_time = now
            self.num_tokens += 1
            message.append({"rid": rid, "signal": TOKEN, "token": token, "finished": rid in stops})
            self.in_flight.discard(rid)
        self.latencies.clear()
        return message


def measure(num_rows, context, num_steps):
    """Microseconds a step: the median, so that a step in which the process lost its core does not count."""
    engine = Engine(num_rows, context)
    times = []
    gc.collect()
    gc.freeze()
    for _ in range(num_steps + 5):
        begin = time.perf_counter()
        engine.step()
        times.append((time.perf_counter() - begin) * 1e6)
    gc.unfreeze()
    return statistics.median(times[5:])


def integers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=integers, default=[1, 8, 64, 128, 256, 512, 1024])
    parser.add_argument("--context", type=integers, default=[1024])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rigel", help="the program to measure beside it")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()

    runs = []
    for context in options.context:
        for rows in options.rows:
            runs.append({"rows": rows, "context": context, "python_us": measure(rows, context, options.steps)})
    if options.rigel:
        command = [options.rigel, "bench", "step", "--json", "--rows", ",".join(map(str, options.rows)), "--context",
                   ",".join(map(str, options.context))]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for run, ours in zip(runs, answer["rows"], strict=True):
            run["rigel_us"] = ours["host_us"] - ours["forward_us"]
            run["ratio"] = run["python_us"] / run["rigel_us"]
    if options.json:
        print(json.dumps({"rows": runs}))
        return
    print(f"{'rows':>5} {'context':>8} {'python us':>11}" + (f" {'rigel us':>9} {'ratio':>7}" if options.rigel else ""))
    for run in runs:
        line = f"{run['rows']:>5} {run['context']:>8} {run['python_us']:>11.1f}"
        if options.rigel:
            line += f" {run['rigel_us']:>9.1f} {run['ratio']:>7.1f}"
        print(line)


if __name__ == "__main__":
    main()
