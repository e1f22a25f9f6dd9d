"""A contract for import-linter: no module or folder imports itself by way of others.

Imports for type checking count: a name that needs one stands in the wrong module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class NoCycles(Contract):
    """`known` are modules that may still import each other; when they do not, they must be taken out."""

    type_name = "no_cycles"

    known = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look for a cycle among the modules, and in each folder among what it holds."""
        ours = {module for module in graph.modules if module.startswith("pdmuxd.")}
        modules = {module: graph.find_modules_directly_imported_by(module) & ours for module in ours}
        known = set(self.known)
        others = {
            module: imported - known if module in known else imported for module, imported in modules.items()
        }
        wrong = [cycle for cycle in (cycle_in(others), *map(cycle_in, folders(modules).values())) if cycle]
        is_stale = bool(known) and not cycle_in(
            {module: modules.get(module, set()) & known for module in known}
        )
        return ContractCheck(kept=not wrong and not is_stale, metadata={"wrong": wrong, "is_stale": is_stale})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Show the cycles."""
        for cycle in check.metadata["wrong"]:
            output.print_error(" is imported by ".join(cycle))
        if check.metadata["is_stale"]:
            output.print_error("the modules in `known` import each other no more: take them out")


def cycle_in(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """A cycle, each imported by the next, the first again at its end; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def folders(modules: Mapping[str, Iterable[str]]) -> dict[str, dict[str, set[str]]]:
    """By folder, what each of its folders and files imports of those beside it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for importer, imported in modules.items():
        own = importer.split(".")
        for other in (module.split(".") for module in imported):
            shared = next((at for at, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
            if shared is not None:
                importing, beside = (".".join(path[: shared + 1]) for path in (own, other))
                found[".".join(own[:shared])][importing].add(beside)
    return found
