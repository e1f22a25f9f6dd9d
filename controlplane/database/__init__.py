"""The database: how it is opened, changed in one transaction, audited, checked; a row's common parts."""
