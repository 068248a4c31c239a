"""Runs the rigel program on JSON lines."""
import json
import os
import pathlib
import subprocess
import tempfile


class Rigel:
    """One build of the program. `device_texts`: CPU kernels run their device text under the SIMT executor."""

    def __init__(self, program, device_texts=False, threads=0):
        self.program = pathlib.Path(program)
        self.environment = dict(os.environ)
        self.environment.pop("RIGEL_SIMT", None)
        if device_texts:
            self.environment["RIGEL_SIMT"] = "all"
        self.threads = threads

    def lines(self, command, model, requests, *options, timeout=1800):
        """One output object a request. Raises with the program's own message where it fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(request) + "\n")
            file.flush()
            arguments = [str(self.program), command]
            if model is not None:
                arguments.append(str(model))
            arguments += ["--jsonl", file.name, *options]
            if self.threads and command in ("generate", "score"):
                arguments += ["--threads", str(self.threads)]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, env=self.environment,
                                  check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        if len(answers) != len(requests):
            raise RuntimeError(f"{command}: {len(answers)} answers to {len(requests)} requests, status "
                               f"{done.returncode}: {done.stderr[-2000:]}")
        return answers
