"""Ask questions: one option, several options, or a form."""

from __future__ import annotations

import tempfile
from typing import Any

import sayso

SIZE = sayso.Question("Which size?", options=(sayso.Option("small"), sayso.Option("large")))
TOPPINGS = sayso.Question(
    "What goes on it?",
    options=(sayso.Option("Basil"), sayso.Option("Extra cheese", "cheese", "plus 1 euro")),
    multiple=True,
)
ADDRESS = sayso.Question(
    "Where to?",
    schema={
        "type": "object",
        "properties": {"street": {"type": "string"}, "floor": {"type": "integer"}},
        "required": ["street"],
    },
)


def main(store: str) -> None:
    gate = sayso.Gate(store, wait=0)
    inbox = sayso.Inbox(store)

    def order() -> list[Any]:
        with gate.run("pizza-1"):
            return [gate.ask_sync(question) for question in (SIZE, TOPPINGS, ADDRESS)]

    answers: list[Any] = ["small", ["cheese"], {"street": "Elm Road 3", "floor": 2}]
    for answer in answers:
        try:
            order()
        except sayso.Paused as paused:
            (request,) = paused.requests
            assert request.question is not None
            print(f"asked: {request.question.text}")
            try_invalid_answer(inbox, request)
            inbox.respond_sync(request, answer, by="ana")
            print(f"  answered: {answer}")
    print(f"the order: {order()}")
    gate.close()
    inbox.close()


def try_invalid_answer(inbox: sayso.Inbox, request: sayso.Request) -> None:
    try:
        inbox.respond_sync(request, ["a horse"], by="ana")
    except sayso.InvalidDecision as error:
        print(f"  not an answer: {error}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
