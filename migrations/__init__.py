"""Alembic migrations: the only way the schema changes.

They run from the installed package, without an alembic.ini: `alembic_config` says where they are.
"""

from __future__ import annotations

import functools
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData

HERE = Path(__file__).parent


def alembic_config(connection: Connection | None = None, *, metadata: MetaData | None = None) -> Config:
    """Configure Alembic for this package's revisions, to run on `connection`.

    `metadata` are the tables as the code has them: to compare with the database, or to write a revision.
    """
    config = Config()
    # Alembic interpolates % in its options, and a path may hold one.
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    return config


def head_revision() -> str:
    """The revision that this version of pdmuxd works with."""
    head, _known = _revisions(HERE)
    assert head is not None, "the package ships without a revision"  # noqa: S101 - a defect, not an input
    return head


def known_revisions() -> frozenset[str]:
    """All revisions that this version can upgrade from."""
    _head, known = _revisions(HERE)
    return known


@functools.cache  # reading the files takes longer than opening a database, which asks three times
def _revisions(folder: Path) -> tuple[str | None, frozenset[str]]:
    """The head and all revisions of this package, or of the folder that stands for it."""
    assert folder == HERE  # noqa: S101 - `alembic_config` says where they are
    scripts = ScriptDirectory.from_config(alembic_config())
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())
