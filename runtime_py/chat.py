"""Chat messages to the text of a prompt, by the model's own Jinja template.

Input:  messages `{role, content, ...}`, the template's text, the special tokens' names. Output: a
`Prompt`.
Way of the data: page -> **chat** -> `tokenizer` -> engine.

The environment is the one that Hugging Face templates are written for: sandboxed and immutable,
`trim_blocks` and `lstrip_blocks`, loop controls, the `generation` tag, `tojson` without HTML
escapes, `raise_exception`, `strftime_now`.

Only the template may write special tokens. Before rendering, every one that is spelled out in a
message is split by a *guard*, a noncharacter that occurs nowhere else; the tokenizer takes a
guarded name for text and drops the guard. So the message is otherwise seen by the template as it
is: it may trim it, compare it and search it.

    template = ChatTemplate(text, {"bos_token": "<s>"}, specials=["<|im_start|>", "<|im_end|>"])
    prompt = template.render([{"role": "user", "content": "hi"}])
    ids = tokenizer.encode(prompt.guarded, guard=prompt.guard)
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime_py.errors import InputError, TemplateError

Message = Mapping[str, Any]
FIRST_NONCHARACTER = 0xFDD0  # U+FDD0..U+FDEF never stand for text (Unicode 16, section 23.7)


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt; `guarded` is the text with `guard` inside the special tokens that are only
    text.
    """

    guarded: str
    guard: str

    @property
    def text(self) -> str:
        """The prompt as a person reads it."""
        return self.guarded.replace(self.guard, "")


class ChatTemplate:
    """A compiled chat template. `specials` are the names that only the template may write."""

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str] | None = None,
        specials: Iterable[str] = (),
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self.source = source
        self._tokens = dict(tokens or {})
        self._specials = sorted(specials, key=len, reverse=True)
        self._now = now
        try:
            self._template = self._environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template does not compile: line {error.lineno}: {error.message}",
                hint="the bundle's chat_template.jinja is at fault, or Jinja2 is too old for it",
            ) from error

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> Prompt:
        """Return the prompt for `messages`; `variables` (tools, documents, ...) go to the template
        as they are.

        Raises `InputError` for messages of another shape and `TemplateError` where the template
        refuses them, with the template's own words.
        """
        plain = [_checked(message, i) for i, message in enumerate(messages)]
        if not plain:
            raise InputError(
                "there are no messages", hint='pass [{"role": "user", "content": "..."}]'
            )
        guard = _unused_character(
            json.dumps([plain, variables, self.source], ensure_ascii=False, default=str)
        )
        fenced = [self._fenced(message, guard) for message in plain]
        given = {name: self._split(value, guard) for name, value in variables.items()}
        try:
            text = self._template.render(
                {
                    **self._tokens,
                    **given,
                    "messages": fenced,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except _Refused as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from error
        except Exception as error:  # a template is a program of its own and may fail in any way
            raise TemplateError(
                f"the chat template failed: {type(error).__name__}: {error}",
                hint="it may not take messages of this shape",
            ) from error
        return Prompt(text, guard)

    def _environment(self) -> ImmutableSandboxedEnvironment:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: self._now().strftime(form)
        return environment

    def _fenced(self, message: dict[str, Any], guard: str) -> dict[str, Any]:
        """Return `message` with every special token in it split, also those that it could complete
        at its ends.
        """
        fenced: dict[str, Any] = self._split(message, guard)
        fenced["content"] = _fence_ends(fenced["content"], self._specials, guard)
        return fenced

    def _split(self, value: Any, guard: str) -> Any:
        if isinstance(value, str):
            for name in self._specials:
                value = value.replace(name, name[0] + guard + name[1:])
            return value
        if isinstance(value, Mapping):
            return {key: self._split(item, guard) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._split(item, guard) for item in value]
        return value


class _Refused(Exception):
    """What `raise_exception` in a template raises."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`, which marks the model's own turns for training:
    here, just its body.
    """

    tags = {"generation"}  # noqa: RUF012  (the base class declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _checked(message: Any, i: int) -> dict[str, Any]:
    """Return a message whose content is a string: null or none at all is "", text parts are
    joined.
    """
    if not isinstance(message, Mapping):
        raise InputError(
            f"message {i} is {type(message).__name__}, expected an object with role and content"
        )
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise InputError(
            f"message {i} has role {message.get('role')!r}, expected a name such as 'user'"
        )
    return {**message, "content": _content(message.get("content"), i)}


def _content(content: Any, i: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = [_part_text(part) for part in content]
        if None not in texts:
            return "".join(text or "" for text in texts)
    raise InputError(f"message {i} has content that is no text: {type(content).__name__}")


def _part_text(part: Any) -> str | None:
    """Return the text of a part `{"type": "text", "text": ...}`, None for any other part."""
    is_text = isinstance(part, Mapping) and part.get("type") == "text"
    return part["text"] if is_text and isinstance(part.get("text"), str) else None


def _fence_ends(content: str, names: Sequence[str], guard: str) -> str:
    """Return `content` with a guard at an end where text around it could make a special token of
    both.

    Outer spaces stay outside the guards, so a template may trim them as ever.
    """
    core = content.strip()
    if not core:
        return content
    front = any(core in name or core.startswith(_proper_ends(name)) for name in names)
    back = any(core.endswith(_proper_starts(name)) for name in names)
    fenced = (guard if front else "") + core + (guard if back else "")
    return content.replace(core, fenced, 1)


def _proper_starts(name: str) -> tuple[str, ...]:
    return tuple(name[:n] for n in range(1, len(name)))


def _proper_ends(name: str) -> tuple[str, ...]:
    return tuple(name[n:] for n in range(1, len(name)))


def _unused_character(text: str) -> str:
    used = set(text)
    candidates = (*range(FIRST_NONCHARACTER, FIRST_NONCHARACTER + 32), *range(0xF0000, 0x10FFFE))
    return next(chr(code) for code in candidates if chr(code) not in used)
