"""Gate the calls of a coding agent through its own hooks: ``sayso hook``.

The agent starts a small program before each tool use. It asks Sayso, and prints the answer in the
agent's own format. The agent runs the call itself, so a call is *gated*: it does not run unless it
is approved. That it runs once, or at all, is not ours to claim.

Read ``dialects`` (what each agent sends and expects) and ``program`` (ask, wait, answer, and deny
on every error). Both import nothing but the standard library, because an agent waits for them.
``local`` asks a store on this machine instead of a server. ``settings`` installs the hook, and
``doctor`` finds out whether it is on. ``commands`` parses shell commands for ``policies``, the
policies for coding agents, and ``footprints`` for grants; ``attacks`` is a corpus that tries to get
past them. ``trial`` plays a scripted model for the real agents.
"""
