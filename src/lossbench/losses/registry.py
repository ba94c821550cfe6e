"""Names of losses: the decorator that gives them, and the three places where they are found.

Losses come from the modules of `lossbench.losses.families`, from the entry-point group `lossbench.losses` of other
installed packages, and, without any registration, from `module:attribute`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from .base import Loss
from .errors import BadParameter, LossError, UnknownLoss, nearest

ENTRY_POINT_GROUP = "lossbench.losses"
_LOSSES: dict[str, type[Loss]] = {}
LossClass = TypeVar("LossClass", bound=type[Loss])


def register(name: str) -> Callable[[LossClass], LossClass]:
    """Class decorator: make a subclass of `Loss` available as `name`; its defaults are its constructor's."""
    return lambda cls: _add(name, cls)


def _add(name: str, cls: Any) -> Any:
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        raise LossError(f"loss name {name!r} must be a lower-case identifier such as 'focal': @register('focal').")
    if not (inspect.isclass(cls) and issubclass(cls, Loss)):
        raise LossError(f"{cls!r} cannot be registered as {name!r}: it is no subclass of lossbench.losses.Loss.")
    other = _LOSSES.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise LossError(f"the loss name {name!r} is taken by {other.__module__}.{other.__qualname__}; use another.")
    cls.name = name
    _LOSSES[name] = cls
    return cls


@cache
def _discover() -> None:
    """Import every family and every installed plug-in, once; a broken plug-in is a warning, not the end."""
    package = importlib.import_module(f"{__package__}.families")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            _load_plugin(entry)
        except Exception as error:
            warnings.warn(
                f"losses of the entry point {entry.name!r} = {entry.value!r} are not available: "
                f"{type(error).__name__}: {error}",
                stacklevel=3,
            )


def _load_plugin(entry: EntryPoint) -> None:
    """A plug-in is a Loss class, registered under the entry point's name, or a module that registers its own."""
    target = entry.load()
    if inspect.isclass(target) and not (issubclass(target, Loss) and _LOSSES.get(target.name) is target):
        _add(entry.name, target)


def available() -> list[str]:
    """Sorted names of all registered losses."""
    _discover()
    return sorted(_LOSSES)


def get(name: str) -> type[Loss]:
    """Class of a registered loss, or of `module:attribute`."""
    _discover()
    if name in _LOSSES:
        return _LOSSES[name]
    if ":" in name:
        return _from_path(name)
    raise UnknownLoss(f"there is no loss {name!r}.{nearest(name, _LOSSES)}")


def _from_path(path: str) -> type[Loss]:
    target = load(path)
    if not (inspect.isclass(target) and issubclass(target, Loss)):
        raise UnknownLoss(f"{path!r} is {target!r}, not a subclass of lossbench.losses.Loss.")
    return target


def load(path: str) -> Any:
    """Whatever stands at `module:attribute`."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownLoss(f"loss {path!r} cannot be imported: {error}.") from error


def parameters(cls: type[Loss]) -> dict[str, Any]:
    """Constructor parameters and their defaults (`inspect.Parameter.empty` where there is none)."""
    signature = inspect.signature(cls.__init__).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default for p in signature if p.kind in named and p.name != "self"}


def create(name: str, **params: Any) -> Loss:
    """A loss by name with its parameters, e.g. `create("focal", gamma=2.0)`; a sentence for a wrong name or value."""
    cls = get(name)
    known = parameters(cls)
    for key in params:
        if key not in known:
            raise BadParameter(f"loss {name!r} has no parameter {key!r}.{nearest(key, known)}")
    missing = [k for k, default in known.items() if default is inspect.Parameter.empty and k not in params]
    if missing:
        raise BadParameter(f"loss {name!r} needs the parameter {' and '.join(map(repr, missing))}.")
    try:
        return cls(**params)
    except BadParameter as error:
        raise BadParameter(f"loss {name!r}: {error}") from None
