"""The tools of an agent that are known without a run; an MCP server's, for one, are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)

from sayso.adapters.pydantic_ai.toolset import face_of
from sayso.gate.foreign import ForeignTool


def faces_of(toolsets: Iterable[AbstractToolset[Any]]) -> list[ForeignTool]:
    """How the gate knows the tools in these, under the names that the model is given."""
    return [face for toolset in toolsets for face in _faces(toolset)]


def _faces(toolset: Any) -> Iterator[ForeignTool]:
    if isinstance(toolset, FunctionToolset):
        yield from (face_of(t.tool_def, t.tool_def.kind) for t in toolset.tools.values())
    elif isinstance(toolset, ExternalToolset):
        yield from (face_of(made, "external") for made in toolset.tool_defs)
    elif isinstance(toolset, CombinedToolset):
        yield from faces_of(toolset.toolsets)
    elif isinstance(toolset, WrapperToolset):
        yield from (_changed(face, toolset) for face in _faces(toolset.wrapped))


def _changed(face: ForeignTool, by: WrapperToolset[Any]) -> ForeignTool:
    if isinstance(by, PrefixedToolset):
        return replace(face, name=f"{by.prefix}_{face.name}")
    if isinstance(by, RenamedToolset):
        new = {old: name for name, old in by.name_map.items()}
        return replace(face, name=new.get(face.name, face.name))
    if isinstance(by, ApprovalRequiredToolset) and face.needs_approval is False:
        return replace(face, needs_approval=lambda _: True)  # it looks at each call
    return face
