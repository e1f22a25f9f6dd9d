"""A contract for import-linter: a folder imports what its row of docs/folders.md allows, nothing else.

A list of what is forbidden would let every new dependency through; this one stops it.
"""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowedImports(Contract):
    """`folder` may import itself, `allowed` (each with what is below it) and the standard library.

    `allowed_stdlib` narrows the last to the named modules.
    """

    type_name = "allowed_imports"

    folder = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField(), required=False, default=[])
    allowed_stdlib = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every direct import of every module in the folder."""
        stdlib = sys.stdlib_module_names if self.allowed_stdlib is None else self.allowed_stdlib
        allowed = {self.folder, *self.allowed, *stdlib}
        wrong = sorted(
            (importer, imported)
            for importer in graph.modules
            if _is_within(importer, {self.folder})
            for imported in graph.find_modules_directly_imported_by(importer)
            if not _is_within(imported, allowed)
        )
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """List the wrong imports."""
        for importer, imported in check.metadata["wrong"]:
            output.print_error(f"{importer} must not import {imported}")


def _is_within(module: str, packages: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:length]) in packages for length in range(1, len(parts) + 1))
