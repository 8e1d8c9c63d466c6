"""Prompts for a real model: chat, code, other scripts, emoji, one token, a long one.

Input:  nothing. Output: `PROMPTS`, rows of data; `chat_text`, what SmolLM2's template makes of a
user's message, spelled out by hand so that the template engine is checked against it.
Way of the data: read by tests/real_model.py and tests/test_smollm2.py.

    PROMPTS["capital"].text        # 'The capital of France is'
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_TOKENS = 400
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
FACTS = (
    "The lighthouse stands on the northern cape. Its keeper, a quiet woman of sixty, writes down "
    "the wind at noon and the height of the waves at dusk. In winter the road is closed, and the "
    "mail comes by boat when the sea allows it. "
)


@dataclass(frozen=True)
class Prompt:
    """A text to continue, or with `chat` a user's message; cut to `tokens` ids if that is set."""

    text: str
    chat: bool = False
    tokens: int = 0


PROMPTS = {
    "capital": Prompt("The capital of France is"),
    "one-token": Prompt("Hello"),
    "chat": Prompt("What is the capital of Italy?", chat=True),
    "chat-accents": Prompt("Say “good morning” in German, Zürich style 😀", chat=True),
    "python": Prompt('def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'),
    "json": Prompt('{"name": "Ada", "born": 1815, "languages": ["'),
    "chinese": Prompt("人工智能的未来是"),
    "arabic": Prompt("السلام عليكم"),
    "emoji": Prompt("I love 🍕 and 🎉 because 👩‍👩‍👧"),
    "numbers": Prompt("1, 1, 2, 3, 5, 8, 13, 21,"),
    "spaces": Prompt("\n\n\t  - item one\n\t  - item two\n"),
    "long": Prompt(FACTS * 12, tokens=LONG_TOKENS),
}


def chat_text(message: str) -> str:
    """Return the text of a conversation of one user's message, as SmolLM2 was trained on it."""
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"
    )
