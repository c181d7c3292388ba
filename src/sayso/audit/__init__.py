"""Verify the record, or export it for others to verify.

Read ``chain`` (events, hashes, the report), then ``replay`` (what rows the events imply),
``system`` (seals, grants, tokens, pruning), and ``verify``, which compares all of it. ``explain``
does the same for one request, and ``prove`` writes a proof of decisions that passkeys signed.

What each part proves:

* An event's *hash* covers its fields and the previous hash. With an HMAC key, only holders of the
  key can compute it. With Ed25519 keys it is a plain hash, which the seals protect.
* An event's *digest* covers its body, so ``prune`` can delete a body without breaking the chain.
  A missing body is legal only if a ``pruned`` event says so.
* A thread's *MAC* proves where its chain ends, so events cut off the end are noticed.
* A *seal* signs the heads of the chains that moved, and the previous seal. It reveals threads that
  disappeared and chains that were rewritten.
* Calls, runs, messages, grants, tokens and effect keys are rows that change; each must match what
  the events say, and its MAC. What use refuses, ``verify`` reports.

Events after the last seal are protected by their chain alone; ``Report.unsealed`` counts them.
"""

from sayso.audit.chain import Checkpoint, Problem, Report, export
from sayso.audit.explain import Explanation, explain
from sayso.audit.prove import prove
from sayso.audit.verify import verify

__all__ = ["Checkpoint", "Explanation", "Problem", "Report", "explain", "export", "prove", "verify"]
