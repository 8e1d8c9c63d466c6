"""Every error tabfire raises on purpose, under two roots.

Input:  a `code` (stable, for programs), a message (what was expected, what was found, where), a
hint (what to do).
Output: exceptions that cross to JavaScript as `TabfireError {code, message, hint}`.
Way of the data: imported by every stage, imports nothing.

    raise ContextFullError("prompt of 3000 tokens does not fit a context of 2048",
                           hint="shorten the prompt or export with --max-context 4096")
"""

from __future__ import annotations

from typing import ClassVar


class TabfireError(Exception):
    """Root of all errors raised on purpose; `code` names the class for programs."""

    code: ClassVar[str] = "tabfire"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def to_dict(self) -> dict[str, str]:
        """Return `{code, message, hint}`, the shape in which an error crosses to JavaScript."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UserError(TabfireError):
    """The model, file, option or device cannot do what was asked."""

    code = "user"


class InternalError(TabfireError):
    """An invariant of tabfire itself broke; never the user's fault."""

    code = "internal"


class BadBundleError(UserError):
    """A bundle's manifest or graph breaks a rule of docs/FORMAT.md."""

    code = "bad_bundle"


class IntegrityError(UserError):
    """A bundle's file has another size or sha256 than its manifest states."""

    code = "integrity"


class UnsupportedOpError(UserError):
    """The model uses operators (or forms of them) that tabfire has no kernel for."""

    code = "unsupported_op"


class ExportError(UserError):
    """A module or checkpoint cannot be exported as asked."""

    code = "export"


class InputError(UserError):
    """An input of a step or call is missing, unknown, of the wrong shape or out of range."""

    code = "input"


class OptionError(UserError):
    """An unknown option, or a value that the option does not take."""

    code = "option"


class ContextFullError(UserError):
    """The tokens do not fit what is left of the context."""

    code = "context_full"


class OutOfMemoryError(UserError):
    """The device (or a WebGPU limit) cannot hold a buffer that the plan needs."""

    code = "out_of_memory"


class DeviceLostError(UserError):
    """The GPU device went away; load again to get a new one."""

    code = "device_lost"


class WebGPUMissingError(UserError):
    """There is no `navigator.gpu`, or it has no adapter."""

    code = "webgpu_missing"


class FeatureMissingError(UserError):
    """An option demands a device feature that this adapter does not have."""

    code = "feature_missing"


class NonFiniteError(UserError):
    """The model produced NaN or infinity where numbers were expected."""

    code = "non_finite"


class AbortedError(UserError):
    """The call was stopped by `abort()` or by closing the session."""

    code = "aborted"


class TemplateError(UserError):
    """A chat template refused the messages or cannot be rendered."""

    code = "chat_template"


class TokenizerError(UserError):
    """A tokenizer file cannot be read, or names a scheme that is not known."""

    code = "tokenizer"


class HostError(UserError):
    """A browser or Node host cannot be found or started, or went away."""

    code = "host"


class ShaderError(InternalError):
    """A rendered kernel does not compile: the compiler's message, the numbered source, the key."""

    code = "shader"
