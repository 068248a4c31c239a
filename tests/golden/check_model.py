#!/usr/bin/env python3
"""End to end: the rigel program against references made by other software (tests/data/README.md).

usage: check_model.py --rigel PROGRAM [--part default|--quick|--full|--tiny] [--model FILE] [--device-texts] [--gpu]
Prints a line a check; exit status 1 if any fails. --part=--tiny needs no model file. --device-texts runs every kernel's
device text on the CPU, on few short prompts: the executor is for truth, not for speed. --gpu leaves out what only the CPU
device promises: the same bits in any company.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

from agreement import BFLOAT16, FLOAT32, check_greedy, check_logits, check_scores, read_logits
from rigel_program import Rigel

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SMOLLM2 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
LOGIT_NAMES = ("chat_hello", "chinese", "code_py", "france", "long_700")
DEVICE_TEXT_NAMES = ("france", "one_token", "count", "french", "chinese", "chat_hello", "long_700")
DEVICE_TEXT_TOKENS = 16
# What 32 requests in one batch look like: prompts of very different lengths, greedy and seeded, with and without penalties.
MIXED_REQUESTS = 32
MIXED_TOKENS = 24


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Checks:
    def __init__(self):
        self.failed = 0

    def report(self, name, complaints, begin, summary=""):
        seconds = time.monotonic() - begin
        print(f"{'ok  ' if not complaints else 'FAIL'} {name} ({seconds:.1f} s) {summary}", flush=True)
        for complaint in complaints[:10]:
            print(f"     {complaint}")
        self.failed += bool(complaints)


def dtype_options(dtype):
    return ("--dtype", "float32") if dtype == "float32" else ()


def tolerance_of(dtype):
    return FLOAT32 if dtype == "float32" else BFLOAT16


def check_scoring(checks, rigel, model, cases, dtype, title, logit_names=()):
    """cases: {name, ids, logprobs}."""
    begin, tolerance = time.monotonic(), tolerance_of(dtype)
    with tempfile.TemporaryDirectory() as folder:
        answers = rigel.lines("score", model, [{"ids": case["ids"]} for case in cases], *dtype_options(dtype),
                              "--dump-logits", folder)
        complaints, summary = check_scores([(case["name"], answer.get("logprobs", [None]), case["logprobs"])
                                            for case, answer in zip(cases, answers)], tolerance)
        for index, case in enumerate(cases):
            if case["name"] in logit_names:
                ours = read_logits(pathlib.Path(folder) / f"{index}.f32")
                reference = read_logits(DATA / "smollm2" / f"logits_{case['name']}.f32")
                complaints += check_logits(case["name"], ours, reference, tolerance)
    checks.report(f"{title}: scores and logits, {dtype}", complaints, begin, summary)


def check_free_greedy(checks, rigel, model, cases, dtype, title, num_tokens):
    """cases: {name, prompt_ids, ids, gaps}."""
    begin = time.monotonic()
    requests = [{"prompt_ids": case["prompt_ids"], "temperature": 0, "ignore_eos": True, "max_tokens": num_tokens}
                for case in cases]
    complaints = []
    for case, answer in zip(cases, rigel.lines("generate", model, requests, *dtype_options(dtype))):
        ours = answer["choices"][0]["ids"] if "choices" in answer else []
        complaints += check_greedy(case["name"], ours, case["ids"][:num_tokens], case["gaps"], tolerance_of(dtype),
                                   forced=False)
    checks.report(f"{title}: greedy, free, {dtype}", complaints, begin)


def check_forced_greedy(checks, rigel, model, cases, dtype, title, num_tokens):
    begin = time.monotonic()
    requests = [{"ids": case["prompt_ids"] + case["ids"][:num_tokens]} for case in cases]
    complaints = []
    for case, answer in zip(cases, rigel.lines("score", model, requests, *dtype_options(dtype), "--top", "1")):
        last = len(case["prompt_ids"]) - 1
        best = [top[0][0] for top in answer["top"][last:last + num_tokens]] if "top" in answer else []
        complaints += check_greedy(case["name"], best, case["ids"][:num_tokens], case["gaps"], tolerance_of(dtype),
                                   forced=True)
    checks.report(f"{title}: greedy, forced, {dtype}", complaints, begin)


def smollm2_cases(names=None):
    scores = [case for case in read_lines(DATA / "smollm2" / "scores.jsonl") if names is None or case["name"] in names]
    greedy = []
    for case in read_lines(DATA / "smollm2" / "greedy.jsonl"):
        if names is None or case["name"] in names:
            gaps = [top[0][1] - top[1][1] for top in case["top5"]]
            greedy.append({**case, "gaps": gaps})
    return scores, greedy


def check_smollm2(checks, rigel, model, dtypes, names, num_tokens):
    scores, greedy = smollm2_cases(names)
    for dtype in dtypes:
        check_scoring(checks, rigel, model, scores, dtype, "smollm2", LOGIT_NAMES)
        check_forced_greedy(checks, rigel, model, greedy, dtype, "smollm2", num_tokens)
        check_free_greedy(checks, rigel, model, greedy, dtype, "smollm2", num_tokens)


def check_tiny(checks, rigel, folder):
    """float32 alone: the tiny checkpoints' random weights make bfloat16 differences meaningless."""
    title = f"tiny/{folder.name}"
    lines = read_lines(folder / "cases.jsonl")
    scores = [{"name": f"{len(line['ids'])} tokens", **line} for line in lines]
    greedy = [{"name": f"{len(line['ids'])} tokens", "prompt_ids": line["ids"], "ids": line["greedy"],
               "gaps": line["gap"]} for line in lines]
    check_scoring(checks, rigel, folder, scores, "float32", title)
    check_forced_greedy(checks, rigel, folder, greedy, "float32", title, 24)
    check_free_greedy(checks, rigel, folder, greedy, "float32", title, 24)


def check_chat_prompts(checks, rigel, model):
    """The chat template and the tokenizer together give the reference's prompt ids."""
    begin = time.monotonic()
    chats = json.loads((DATA / "smollm2" / "chats.json").read_text(encoding="utf-8"))
    expected = {case["name"]: case["prompt_ids"] for case in read_lines(DATA / "smollm2" / "greedy.jsonl")}
    rendered = rigel.lines("render", model, [{"messages": chat["messages"]} for chat in chats])
    tokens = rigel.lines("tokenize", model, [{"text": answer.get("rendered", ""), "add_special": False,
                                                "parse_special": True} for answer in rendered])
    complaints = [f"{chat['name']}: {answer.get('ids')} instead of {expected[chat['name']]}"
                  for chat, answer in zip(chats, tokens) if answer.get("ids") != expected[chat["name"]]]
    checks.report("smollm2: chat prompts", complaints, begin)


def check_plain_prompts(checks, rigel, model):
    """Prompt texts of the references give their ids."""
    begin = time.monotonic()
    texts = json.loads((DATA / "smollm2" / "texts.json").read_text(encoding="utf-8"))
    expected = {case["name"]: case["prompt_ids"] for case in read_lines(DATA / "smollm2" / "greedy.jsonl")}
    answers = rigel.lines("tokenize", model, [{"text": text["text"]} for text in texts])
    complaints = [f"{text['name']}: {answer.get('ids')} instead of {expected[text['name']]}"
                  for text, answer in zip(texts, answers) if answer.get("ids") != expected[text["name"]]]
    checks.report("smollm2: prompt ids", complaints, begin)


def mixed_requests():
    prompts = [case["prompt_ids"] for case in read_lines(DATA / "smollm2" / "greedy.jsonl")
               if len(case["prompt_ids"]) <= 700]
    requests = []
    for index in range(MIXED_REQUESTS):
        request = {"prompt_ids": prompts[index % len(prompts)], "max_tokens": MIXED_TOKENS, "logprobs": 2}
        if index % 2 == 0:
            request |= {"temperature": 0}
        else:
            request |= {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "seed": 1000 + index}
        if index % 3 == 0:
            request |= {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2}
        if index % 5 == 0:
            request |= {"ignore_eos": True, "min_p": 0.02}
        requests.append(request)
    return requests


def check_company(checks, rigel, model):
    """Together each request gets exactly what it gets alone: ids, text, reason and log-probabilities."""
    begin = time.monotonic()
    requests = mixed_requests()
    together = rigel.lines("generate", model, requests)
    small_steps = rigel.lines("generate", model, requests, "--max-num-batched-tokens", "96", "--max-num-seqs", "24")
    alone = rigel.lines("generate", model, requests, "--max-num-seqs", "1")
    complaints = []
    for index, answer in enumerate(alone):
        if "choices" not in answer:
            complaints.append(f"request {index}: {answer}")
        if together[index] != answer:
            complaints.append(f"request {index} differs in company")
        if small_steps[index] != answer:
            complaints.append(f"request {index} differs in small steps")
    checks.report(f"smollm2: {MIXED_REQUESTS} mixed requests alone and together", complaints, begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rigel", required=True)
    parser.add_argument("--part", default="default", help="default, --quick, --full or --tiny")
    parser.add_argument("--model", type=pathlib.Path, default=SMOLLM2, help="where SmolLM2 lies")
    parser.add_argument("--device-texts", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    options = parser.parse_args()

    checks = Checks()
    rigel = Rigel(options.rigel, device_texts=options.device_texts)
    tiny = sorted(folder for folder in (DATA / "tiny").iterdir() if folder.is_dir())
    if options.device_texts:
        check_smollm2(checks, rigel, options.model, ["bfloat16"], DEVICE_TEXT_NAMES, DEVICE_TEXT_TOKENS)
    else:
        for folder in tiny:
            check_tiny(checks, rigel, folder)
    if not options.device_texts and options.part != "--tiny":
        names = None if options.part == "--full" else {
            case["name"] for case in read_lines(DATA / "smollm2" / "scores.jsonl") if len(case["ids"]) <= 1500}
        check_plain_prompts(checks, rigel, options.model)
        check_chat_prompts(checks, rigel, options.model)
        check_smollm2(checks, rigel, options.model, ["bfloat16", "float32"], names, 64)
        if not options.gpu:
            check_company(checks, rigel, options.model)
    print(f"{'all checks passed' if not checks.failed else f'{checks.failed} checks failed'}")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
