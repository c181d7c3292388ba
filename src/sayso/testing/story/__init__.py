"""One story that the adapter of every framework must pass: ``AdapterStory``.

``stage`` is what an adapter's tests write, ``props`` what is on it (tools, policy, scripts),
``step`` plays one step in some process, ``nursery`` keeps processes to kill, ``scene`` puts them
together for one test, and the other modules are the cases.
"""
