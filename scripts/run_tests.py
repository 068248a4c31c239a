#!/usr/bin/env python3
"""Runs the test programs of a build, as many at a time as there are cores, and counts what they did.

usage: run_tests.py BUILD_DIR [--only ROOM,...] [--filter GTEST_FILTER] [--report FILE] [--failures FILE]
A test program is BUILD_DIR/test_ROOM (GoogleTest). A program that crashes, hangs or runs no test is a failure of its own.
--report appends one line "PASSED FAILED SKIPPED" for the caller's sum, --failures a line a failed test.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 900
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1",
}


def run_program(program, gtest_filter):
    """(passed, failed, skipped, failures, output, seconds) of one test program."""
    start = time.monotonic()
    output, *counts = run_and_count(program, gtest_filter)
    return (*counts, output, time.monotonic() - start)


def run_and_count(program, gtest_filter):
    """(output, passed, failed, skipped, failures) of one test program."""
    with tempfile.TemporaryDirectory() as folder:
        result_file = pathlib.Path(folder) / "result.json"
        command = [str(program), f"--gtest_output=json:{result_file}", "--gtest_brief=1"]
        if gtest_filter:
            command.append(f"--gtest_filter={gtest_filter}")
        environment = dict(os.environ)
        for name, value in SANITIZER_OPTIONS.items():
            environment.setdefault(name, value)
        try:
            done = subprocess.run(command, timeout=TIMEOUT_S, env=environment, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            return expired.stdout or b"", 0, 1, 0, [f"{program.name}: no end after {TIMEOUT_S} s"]
        if not result_file.exists():
            return output, 0, 1, 0, [f"{program.name}: ended with status {status} before its tests did"]
        try:
            result = json.loads(result_file.read_text())
        except json.JSONDecodeError:
            # GoogleTest's report of failures outside any test is no JSON.
            return output, 0, 1, 0, [f"{program.name}: a failure outside its tests, status {status}"]
    passed = failed = skipped = 0
    failures = []
    for suite in result["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("failures"):
                failed += 1
                failures.append(f"{program.name}: {suite['name']}.{test['name']}")
            elif test.get("result") == "SKIPPED":
                skipped += 1
            elif test.get("status") == "RUN":
                passed += 1
    if passed + failed + skipped == 0:
        failed, failures = 1, [f"{program.name}: ran no test"]
    elif status != 0 and failed == 0:
        failed, failures = 1, [f"{program.name}: tests passed, but the program ended with status {status}"]
    return output, passed, failed, skipped, failures


def print_end(output, whole):
    """The output of a program; of one that passed the last lines alone."""
    lines = output.decode(errors="replace").splitlines()
    print("\n".join(lines if whole else lines[-4:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--filter", default="")
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

    totals = [0, 0, 0]
    failures = []
    # The large programs first, so that none of them runs alone at the end.
    programs.sort(key=lambda program: program.stat().st_size, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(run_program, program, options.filter): program for program in programs}
        for run in concurrent.futures.as_completed(runs):
            passed, failed, skipped, failed_tests, output, seconds = run.result()
            totals = [a + b for a, b in zip(totals, (passed, failed, skipped))]
            failures += failed_tests
            print_end(output, whole=bool(failed_tests))
            print(f"{runs[run].name}: {passed} passed, {failed} failed, {skipped} skipped ({seconds:.1f} s)", flush=True)
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{options.build.name}: {totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    if options.report:
        with open(options.report, "a", encoding="utf-8") as report:
            report.write("{} {} {}\n".format(*totals))
    if options.failures:
        with open(options.failures, "a", encoding="utf-8") as listing:
            listing.writelines(f"FAILED {options.build.name} {failure}\n" for failure in failures)
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
