"""What it means that answers agree with a reference: tolerances by compute type, and the comparisons."""
import array
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Tolerance:
    mean_logprob: float  # of one prompt in float32, of all prompts in bfloat16
    mean_is_overall: bool
    max_logprob: float
    max_logit: float
    max_divergence: float  # KL(reference, ours) of the last position
    gap: float  # greedy steps whose two best logits lie closer may differ


FLOAT32 = Tolerance(2e-4, False, 5e-3, 5e-3, math.inf, 5e-3)
BFLOAT16 = Tolerance(0.05, True, 1.0, 1.0, 0.01, 0.25)


def logprob_errors(ours, reference):
    if len(ours) != len(reference):
        raise ValueError(f"{len(ours)} log-probabilities, the reference has {len(reference)}")
    # A NaN must count as the worst error, not vanish in a comparison.
    return [abs(a - b) if a is not None and math.isfinite(a) else math.inf for a, b in zip(ours, reference)]


def check_scores(cases, tolerance):
    """cases: (name, our logprobs, reference logprobs). Returns a list of complaints."""
    complaints, everything = [], []
    for name, ours, reference in cases:
        errors = logprob_errors(ours, reference)
        everything += errors
        if errors and max(errors) > tolerance.max_logprob:
            complaints.append(f"{name}: a log-probability is off by {max(errors):.4g}")
        if errors and not tolerance.mean_is_overall and sum(errors) / len(errors) > tolerance.mean_logprob:
            complaints.append(f"{name}: log-probabilities are off by {sum(errors) / len(errors):.4g} on average")
    if tolerance.mean_is_overall and everything and sum(everything) / len(everything) > tolerance.mean_logprob:
        complaints.append(f"log-probabilities are off by {sum(everything) / len(everything):.4g} on average")
    summary = f"mean {sum(everything) / max(1, len(everything)):.2e} max {max(everything, default=0):.2e}"
    return complaints, summary


def check_greedy(name, ours, reference, gaps, tolerance, forced):
    """Free-running text is compared up to the first step whose gap is within the tolerance; forced text at every step."""
    for step, (a, b, gap) in enumerate(zip(ours, reference, gaps)):
        if gap <= tolerance.gap:
            if forced:
                continue
            return []
        if a != b:
            return [f"{name}: step {step} gives {a}, the reference {b} by {gap:.3f}"]
    if len(ours) < len(reference):
        return [f"{name}: {len(ours)} tokens, expected {len(reference)}"]
    return []


def read_logits(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def log_softmax(logits):
    top = max(logits)
    total = math.log(sum(math.exp(x - top) for x in logits)) + top
    return [x - total for x in logits]


def check_logits(name, ours, reference, tolerance):
    if len(ours) != len(reference):
        return [f"{name}: {len(ours)} logits, expected {len(reference)}"]
    worst = max(abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(ours, reference))
    p, q = log_softmax(reference), log_softmax(ours)
    divergence = sum(math.exp(a) * (a - b) for a, b in zip(p, q))
    complaints = []
    if not worst <= tolerance.max_logit:
        complaints.append(f"{name}: a logit is off by {worst:.4g}")
    if not divergence <= tolerance.max_divergence:
        complaints.append(f"{name}: KL divergence {divergence:.4g}")
    return complaints
