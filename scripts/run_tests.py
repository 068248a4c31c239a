#!/usr/bin/env python3
"""Runs the test programs of a build, each cut into as many parts as run at a time, and counts what they did.

usage: run_tests.py BUILD_DIR [--only ROOM,...] [--filter GTEST_FILTER] [--jobs N] [--report FILE] [--failures FILE]
A test program is BUILD_DIR/test_ROOM (GoogleTest). A part that crashes or hangs is a failure of its own, and so is a program
that runs no test. --jobs is the number of cores unless said. --report appends one line "PASSED FAILED SKIPPED" for the
caller's sum, --failures a line a failed test.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 1800
SLOW_S = 10  # a test that takes longer is told of
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1",
}


@dataclasses.dataclass
class Outcome:
    """What one part of a test program did, or several together."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)
    slow: list = dataclasses.field(default_factory=list)  # (seconds, test)
    seconds: float = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.slow += other.slow
        self.seconds += other.seconds

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_part(program, part, num_parts, gtest_filter):
    """(Outcome, output) of every num_parts-th test of a program, from `part` on."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result_file = pathlib.Path(folder) / "result.json"
        command = [str(program), f"--gtest_output=json:{result_file}", "--gtest_brief=1"]
        if gtest_filter:
            command.append(f"--gtest_filter={gtest_filter}")
        environment = dict(os.environ, GTEST_TOTAL_SHARDS=str(num_parts), GTEST_SHARD_INDEX=str(part))
        for name, value in SANITIZER_OPTIONS.items():
            environment.setdefault(name, value)
        try:
            done = subprocess.run(command, timeout=TIMEOUT_S, env=environment, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            outcome = read_result(program.name, result_file, done.returncode)
            output = done.stdout
            if outcome.failed:
                outcome.failures += sanitizer_findings(output)
        except subprocess.TimeoutExpired as expired:
            outcome = Outcome(failed=1, failures=[f"{program.name}: no end after {TIMEOUT_S} s"])
            output = expired.stdout or b""
    outcome.seconds = time.monotonic() - start
    return outcome, output


def sanitizer_findings(output):
    """The lines by which a sanitizer names its finding: a long log may have lost the rest."""
    lines = output.decode(errors="replace").splitlines()
    return [f"  {line}" for line in lines if line.startswith("SUMMARY: ") or ": runtime error: " in line]


def read_result(name, result_file, status):
    if not result_file.exists():
        return Outcome(failed=1, failures=[f"{name}: ended with status {status} before its tests did"])
    try:
        result = json.loads(result_file.read_text())
    except json.JSONDecodeError:
        # GoogleTest's report of failures outside any test is no JSON.
        return Outcome(failed=1, failures=[f"{name}: a failure outside its tests, status {status}"])
    outcome = Outcome()
    for suite in result["testsuites"]:
        for test in suite["testsuite"]:
            seconds = float(test["time"].rstrip("s"))
            if seconds >= SLOW_S:
                outcome.slow.append((seconds, f"{name}: {suite['name']}.{test['name']}"))
            if test.get("failures"):
                outcome.failed += 1
                outcome.failures.append(f"{name}: {suite['name']}.{test['name']}")
            elif test.get("result") == "SKIPPED":
                outcome.skipped += 1
            elif test.get("status") == "RUN":
                outcome.passed += 1
    if status != 0 and outcome.failed == 0:
        outcome.failed = 1
        outcome.failures = [f"{name}: tests passed, but the program ended with status {status}"]
    return outcome


def print_end(output, whole):
    """The output of a program; of one that passed the last lines alone."""
    lines = output.decode(errors="replace").splitlines()
    print("\n".join(lines if whole else lines[-4:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--filter", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--failures", type=pathlib.Path)
    options = parser.parse_args()

    programs = sorted(options.build.glob("test_*"))
    programs = [p for p in programs if p.is_file() and os.access(p, os.X_OK)]
    if options.only:
        wanted = {f"test_{room}" for room in options.only.split(",")}
        programs = [p for p in programs if p.name in wanted]
        missing = wanted - {p.name for p in programs}
        if missing:
            sys.exit(f"not built: {', '.join(sorted(missing))}")
    if not programs:
        sys.exit(f"no test programs in {options.build}")

    # The large programs first, so that none of them runs alone at the end.
    programs.sort(key=lambda program: program.stat().st_size, reverse=True)
    outcomes = {program: Outcome() for program in programs}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run_part, program, part, options.jobs, options.filter): program
                for program in programs for part in range(options.jobs)}
        for run in concurrent.futures.as_completed(runs):
            outcome, output = run.result()
            outcomes[runs[run]].add(outcome)
            print_end(output, whole=bool(outcome.failed))
            print(f"{runs[run].name}: {outcome} ({outcome.seconds:.1f} s)", flush=True)
    total = Outcome()
    for program, outcome in outcomes.items():
        if outcome.passed + outcome.failed + outcome.skipped == 0:
            outcome = Outcome(failed=1, failures=[f"{program.name}: ran no test"])
        total.add(outcome)
    for seconds, test in sorted(total.slow, reverse=True):
        print(f"slow ({seconds:.0f} s) {test}")
    for failure in total.failures:
        print(f"FAILED {failure}")
    print(f"{options.build.name}: {total}")
    if options.report:
        with open(options.report, "a", encoding="utf-8") as report:
            report.write(f"{total.passed} {total.failed} {total.skipped}\n")
    if options.failures:
        with open(options.failures, "a", encoding="utf-8") as listing:
            listing.writelines(f"FAILED {options.build.name} {failure}\n" for failure in total.failures)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
