"""The configurations of all runs of a sweep, composed by Hydra as seldom as possible.

Hydra needs about 0.1 s for one composition, so that thousands of runs would take minutes. Only choices of groups
(`loss=emo`) change what is composed: runs that differ in values alone (`seed=3`) share one composition, on which the
values are set. And where the axes of a grid touch different keys, the combinations follow from composing every option
once; the combination that is farthest from the first is composed by Hydra as well, and must come out the same.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lossbench.sweep.config_files import read_once

Plain = dict[str, Any]
Key = tuple[str, ...]
ABSENT = object()
INTERPOLATION = re.compile(r"\$\{([^}]*)\}")


class Composer:
    """Composes the runs of one sweep.

    Args:
        loader: Hydra's.
        master: the configuration of the sweep itself.
        plain: turns a composed configuration into plain data (resolved, and complete or an error).
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig, plain: Callable[[DictConfig], Plain]) -> None:
        self._loader, self._master, self._plain = loader, master, plain
        self._parser = OverridesParser.create(config_loader=loader)
        self._parsed: dict[str, Override] = {}
        self._whole: dict[tuple[str, ...], DictConfig] = {}
        self._leaves: dict[tuple[str, ...], dict[Key, Any]] = {}  # made of options, not composed
        self._bases: dict[tuple[str, ...], tuple[Plain, tuple[Key, ...]] | None] = {}
        self._groups: dict[str, bool] = {}
        self._is_value: dict[str, bool] = {}
        self._settings: dict[str, tuple[Key, Any] | None] = {}

    def compose(self, runs: Sequence[Sequence[str]]) -> list[Plain]:
        """The plain configuration of every run, given its overrides."""
        split = [self._split(run) for run in runs]
        with read_once(self._loader):
            self._compose_separably(list(dict.fromkeys(choices for choices, _ in split)))
            return [self._with_values(choices, values) for choices, values in split]

    def _split(self, run: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(what decides the composition, plain values) of a run's overrides."""
        choices: list[str] = []
        values: list[str] = []
        for text in run:
            if text not in self._is_value:
                override = self._override(text)
                decides = override.package is not None or self._is_group(override) or override.is_hydra_override()
                self._is_value[text] = not decides
            (values if self._is_value[text] else choices).append(text)
        return tuple(choices), tuple(values)

    def _override(self, text: str) -> Override:
        if text not in self._parsed:
            self._parsed[text] = self._parser.parse_override(text)
        return self._parsed[text]

    def _is_group(self, override: Override) -> bool:
        key = override.key_or_group
        if key not in self._groups:
            self._groups[key] = bool(self._loader.get_group_options(key))
        return self._groups[key]

    def _hydra(self, choices: tuple[str, ...]) -> DictConfig:
        """What choices alone compose to; interpolations are left as they are."""
        if choices not in self._whole:
            if choices in self._leaves:
                self._whole[choices] = OmegaConf.create(_nested(self._leaves[choices]))
            else:
                self._whole[choices] = _own(self._loader.load_sweep_config(self._master, list(choices)))
        return self._whole[choices]

    def _base(self, choices: tuple[str, ...]) -> tuple[Plain, tuple[Key, ...]] | None:
        """Plain data of choices alone, and the keys that interpolations refer to; None while a key has no value."""
        if choices not in self._bases:
            self._bases[choices] = self._find_base(choices)
        return self._bases[choices]

    def _find_base(self, choices: tuple[str, ...]) -> tuple[Plain, tuple[Key, ...]] | None:
        leaves = self._leaves.get(choices)
        if leaves is not None and (tree := _resolved(leaves)) is not None:
            return tree, _referred(leaves)
        whole = self._hydra(choices)
        if OmegaConf.missing_keys(whole):
            return None
        return self._plain(whole), _referred(_leaves(_unresolved(whole)))

    def _with_values(self, choices: tuple[str, ...], values: tuple[str, ...]) -> Plain:
        for text in values:
            if text not in self._settings:
                self._settings[text] = self._simple(text)
        settings = [setting for text in values if (setting := self._settings[text])]
        if len(settings) == len(values):
            base = self._base(choices)
            if base and all(_may_be_set(*base, key) for key, _ in settings):
                return _set(base[0], settings)
            with suppress(OmegaConfBaseException):  # Hydra says better what is wrong
                whole = copy.deepcopy(self._hydra(choices))
                OmegaConf.set_struct(whole, True)
                for key, value in settings:
                    OmegaConf.update(whole, ".".join(key), value, merge=True)
                return self._plain(whole)
        return self._plain(self._loader.load_sweep_config(self._master, [*choices, *values]))

    def _simple(self, text: str) -> tuple[Key, Any] | None:
        """(key, scalar) of `key=value`; None for anything that only Hydra itself should set."""
        override = self._override(text)
        if override.is_delete() or override.is_add() or override.is_force_add() or override.is_sweep_override():
            return None
        value = override.value()
        is_scalar = value is None or isinstance(value, bool | int | float | str)
        if not is_scalar or (isinstance(value, str) and ("${" in value or value == "???")):
            return None
        return tuple(override.key_or_group.split(".")), value

    def _compose_separably(self, needed: list[tuple[str, ...]]) -> None:
        """Fill in the compositions of a grid from those of its options, where that is certain to be right."""
        axes = _axes(needed)
        if axes is None or len(needed) <= 2 + sum(len(axis) - 1 for axis in axes):
            return
        first = needed[0]
        origin = _leaves(_unresolved(self._hydra(first)))
        changes: dict[tuple[int, str], dict[Key, Any]] = {}
        touched: list[set[Key]] = []
        for place, options in enumerate(axes):
            keys: set[Key] = set()
            for option in options:
                changed = (*first[:place], option, *first[place + 1 :])
                changes[place, option] = _difference(origin, _leaves(_unresolved(self._hydra(changed))))
                keys |= changes[place, option].keys()
            touched.append(keys)
        if _overlap(touched):
            return
        made = {choices: _apply(origin, [changes[at] for at in enumerate(choices)]) for choices in needed}
        farthest = self._hydra(needed[-1])
        if made[needed[-1]] != _leaves(_unresolved(farthest)):
            return
        if (tree := _resolved(made[needed[-1]])) is not None and tree != self._plain(farthest):
            return
        self._leaves = {choices: leaves for choices, leaves in made.items() if choices not in self._whole}


def _own(whole: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(whole, [str(key) for key in whole if key not in {"hydra", "sweep"}])


def _unresolved(whole: DictConfig) -> Plain:
    plain = OmegaConf.to_container(whole, resolve=False)
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def _axes(needed: Sequence[tuple[str, ...]]) -> list[list[str]] | None:
    """The options at every place, in order; None where the combinations have different lengths."""
    if len({len(choices) for choices in needed}) != 1:
        return None
    return [list(dict.fromkeys(column)) for column in zip(*needed, strict=True)]


def _leaves(tree: Any, above: Key = ()) -> dict[Key, Any]:
    """Every value that is no mapping, by its path; an empty mapping is a value."""
    if not isinstance(tree, dict) or not tree:
        return {above: tree}
    found: dict[Key, Any] = {}
    for key, value in tree.items():
        found |= _leaves(value, (*above, key))
    return found


def _nested(leaves: Mapping[Key, Any]) -> Plain:
    tree: Plain = {}
    for key, value in leaves.items():
        node = tree
        for name in key[:-1]:
            node = node.setdefault(name, {})
        node[key[-1]] = value
    return tree


def _difference(before: Mapping[Key, Any], after: Mapping[Key, Any]) -> dict[Key, Any]:
    changed = {key: value for key, value in after.items() if key not in before or not _same(before[key], value)}
    return changed | {key: ABSENT for key in before if key not in after}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _apply(origin: Mapping[Key, Any], changes: Sequence[Mapping[Key, Any]]) -> dict[Key, Any]:
    leaves = dict(origin)
    for change in changes:
        for key, value in change.items():
            if value is ABSENT:
                leaves.pop(key, None)
            else:
                leaves[key] = value
    return leaves


def _overlap(touched: Sequence[set[Key]]) -> bool:
    """Whether two axes change one key, or one of them a key below another's."""
    owner: dict[Key, int] = {}
    for axis, keys in enumerate(touched):
        for key in keys:
            if owner.setdefault(key, axis) != axis:
                return True
    return any(owner.get(key[:length], axis) != axis for key, axis in owner.items() for length in range(1, len(key)))


def _texts(leaves: Mapping[Key, Any]) -> Iterator[str]:
    """Every string among the leaves and in their lists, however deep."""
    waiting = list(leaves.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()


def _referred(leaves: Mapping[Key, Any]) -> tuple[Key, ...]:
    """The keys that interpolations among leaves name; `()` stands for a resolver, which may look at anything."""
    names = [name for text in _texts(leaves) if "${" in text for name in INTERPOLATION.findall(text)]
    return tuple(dict.fromkeys(() if ":" in name or name.startswith(".") else tuple(name.split(".")) for name in names))


def _resolved(leaves: Mapping[Key, Any]) -> Plain | None:
    """The leaves as a tree, where every interpolation is a whole value that names a leaf; None where one is more than
    that, or a value is missing."""
    found: dict[Key, Any] = {}
    for key, value in leaves.items():
        if isinstance(value, str) and (match := INTERPOLATION.fullmatch(value)):
            value = leaves.get(tuple(match[1].split(".")), "${}")
        if any("${" in text or text == "???" for text in _texts({key: value})):
            return None
        found[key] = value
    return _nested(found)


def _may_be_set(base: Plain, referred: Sequence[Key], key: Key) -> bool:
    """Whether setting `key` in resolved data is all there is to it: it is a leaf, and no interpolation looks at it."""
    node: Any = base
    for name in key:
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    related = any(key[: len(other)] == other or other[: len(key)] == key for other in referred)
    return not isinstance(node, dict) and not related


def _set(base: Plain, settings: Sequence[tuple[Key, Any]]) -> Plain:
    """A copy of `base` with the settings; what is not touched is shared."""
    tree = dict(base)
    for key, value in settings:
        node = tree
        for name in key[:-1]:
            node[name] = dict(node[name])
            node = node[name]
        node[key[-1]] = copy.copy(value)
    return tree
