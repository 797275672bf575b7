"""Arithmetic of the core, proved with z3: each step of a bound's induction, for all values.

Each proof is run again with a fault planted in the rule it is about, and fails if that is not found.
The rules are written here a second time, by hand, from the files named; docs/proofs.md.
"""
import sys
import time

from z3 import And, If, Int, Ints, Not, Or, Reals, Solver, sat, unsat

MILLISECONDS = 60_000


def largest(a, b):
    return If(a > b, a, b)


def smallest(a, b):
    return If(a < b, a, b)


def refuted(*claims):
    """Whether some claim (premises, conclusion) has a counterexample; undecided stops all."""
    for premises, conclusion in claims:
        solver = Solver()
        solver.set("timeout", MILLISECONDS)
        solver.add(premises, Not(conclusion))
        answer = solver.check()
        if answer == sat:
            return solver.model()
        if answer != unsat:
            sys.exit(f"undecided after {MILLISECONDS} ms: {conclusion}")
    return None


def token_bucket(fault):
    """crates/core/src/shape.rs: passed <= max(burst, longest) + earned, over any interval."""
    credit, earned, total, passed, length = Reals("credit earned total passed length")
    burst, longest = Reals("burst longest")
    ranges = And(burst > 0, longest > 0, earned >= 0, total >= 0, length > 0, length <= longest)
    debt = largest(longest - burst, 0)

    def holds(credit, passed, total):
        return And(credit <= burst, credit >= -debt, passed + credit <= burst + total)

    had = credit + earned if fault == "credit beyond the burst" else smallest(credit + earned, burst)
    needed = 0 if fault == "passes with any credit" else smallest(length, burst)
    after, sent = had - length, passed + length
    bound = passed <= largest(burst, longest) + total
    begins = (And(ranges, credit <= burst, credit >= -debt, total == 0, passed == 0),
              holds(credit, passed, total))
    step = (And(ranges, holds(credit, passed, total), had >= needed),
            holds(after, sent, total + earned))
    return refuted(begins, step, (And(ranges, holds(credit, passed, total)), bound))


def token_bucket_wait(fault):
    """The same file, `ready_at`: a packet may pass then, and not a nanosecond earlier."""
    missing, rate, product, rest = Ints("missing rate product rest")
    # product = wait * rate, as div_ceil gives it: (missing + rate - 1) = product + rest.
    dividend = missing if fault == "rounded down" else missing + rate - 1
    given = And(missing > 0, rate > 0, product + rest == dividend, rest >= 0, rest < rate)
    return refuted((given, And(product >= missing, product - rate < missing)))


def gcra(fault):
    """crates/core/src/schedule/tree/node.rs: time sent <= interval + tolerance + a packet."""
    full, now, begun, spent, cost = Reals("full now begun spent cost")
    most, tolerance, passes = Reals("most tolerance passes")
    ranges = And(begun >= 0, now >= begun, passes >= 0, tolerance >= 0, cost > 0, cost <= most)

    def holds(full, now, spent):
        return And(spent >= 0, spent <= largest(full, now) - begun,
                   full <= now + tolerance + most)

    later = now + passes
    may = full <= later + (2 * tolerance + most if fault == "twice the tolerance" else tolerance)
    base = full if fault == "idle time is kept" else largest(full, later)
    begins = (And(ranges, now == begun, spent == 0, full <= now + tolerance + most),
              holds(full, now, spent))
    sends = (And(ranges, holds(full, now, spent), may), holds(base + cost, later, spent + cost))
    bound = (And(ranges, holds(full, now, spent)), spent <= now - begun + tolerance + most)
    return refuted(begins, sends, bound)


def pdrr_deficit(fault):
    """crates/core/src/schedule/pdrr: -max(2Q, L) <= deficit < Q + L, and < L between turns."""
    deficit, offered, spare, length, head = Ints("deficit offered spare length head")
    quantum, longest = Ints("quantum longest")
    ranges = And(quantum > 0, longest > 0, 0 < length, length <= longest, 0 < head,
                 head <= longest, -quantum <= spare, spare <= 0)
    debt = largest(2 * quantum, longest)

    def holds(deficit, offered):
        return And(offered >= spare, offered - spare <= debt, deficit >= spare - offered,
                   deficit < longest)

    # A packet goes with priority: the flow's first, or all that was offered is within Q.
    within = offered <= quantum if fault == "the packet itself is not counted" \
        else offered + length <= quantum
    priority = (And(ranges, holds(deficit, offered), Or(offered == spare, within)),
                holds(deficit - length, offered + length))

    def serves(deficit, offered):
        return And(offered >= spare, offered - spare <= debt, deficit >= spare - offered,
                   deficit < quantum + longest)

    # Its turn: a quantum more, packets as long as they are within the deficit, and what is left is
    # less than the next one.
    begins = (And(ranges, holds(deficit, offered)), serves(deficit + quantum, offered))
    fits = deficit + quantum >= head if fault == "sends ahead of its deficit" else head <= deficit
    sends = (And(ranges, serves(deficit, offered), fits),
             And(serves(deficit - head, offered), deficit - head >= 0))
    over = (And(ranges, serves(deficit, offered), Not(head <= deficit)), holds(deficit, offered))
    bound = (And(ranges, serves(deficit, offered)),
             And(deficit >= -debt, deficit < quantum + longest))
    return refuted(priority, begins, sends, over, bound)


def refill(fault):
    """docs/when-wfq-differentiates.md: two classes of Q packets, one refill of R slots.

    All rings to 8 and weights to 6, any Q that fills the ring: by the smallest finishing time, the
    heavier gets its share (within a packet) if Q >= R w/W, and else all of its queue, which is less.
    """
    queue = Int("queue")
    for ring in range(1, 9):
        for heavy in range(1, 7):
            for light in range(1, heavy + 1):
                a, b = 0, 0
                for _ in range(ring):
                    first = (a + 1) * light <= (b + 1) * heavy
                    if fault == "round robin":
                        first = a <= b
                    take = Or(b >= queue, And(a < queue, first))
                    a, b = If(take, a + 1, a), If(take, b, b + 1)
                total = heavy + light
                off = a * total - ring * heavy
                enough = queue * total >= ring * heavy
                if fault == "half the queue is enough":
                    enough = 2 * queue * total >= ring * heavy
                right = If(enough, And(off < total, -off < total), And(a == queue, off < 0))
                found = refuted((2 * queue >= ring, right))
                if found is not None:
                    return found
    return None


PROOFS = {
    token_bucket: ["credit beyond the burst", "passes with any credit"],
    token_bucket_wait: ["rounded down"],
    gcra: ["twice the tolerance", "idle time is kept"],
    pdrr_deficit: ["the packet itself is not counted", "sends ahead of its deficit"],
    refill: ["round robin", "half the queue is enough"],
}


def main():
    bad = 0
    for proof, faults in PROOFS.items():
        begun = time.monotonic()
        found = proof(None)
        verdict = "proved" if found is None else f"REFUTED by {found}"
        bad += found is not None
        missed = [fault for fault in faults if proof(fault) is None]
        bad += len(missed)
        seconds = time.monotonic() - begun
        print(f"{proof.__name__}: {verdict}; {len(faults) - len(missed)} of {len(faults)} planted "
              f"faults found ({seconds:.1f} s)", *(f"\n  NOT FOUND: {fault}" for fault in missed))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
