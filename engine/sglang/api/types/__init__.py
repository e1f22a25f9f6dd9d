"""SGLang's objects, as far as this package reads, writes and calls them.

Each class in this folder is a part of one of SGLang's. It is a type for mypy, and `check.py` compares SGLang
with it: a member that stands here must exist there, a method must take the parameters as they are written
here (before `/` by position, the others by name), and an attribute must hold such a value.

Members that start with an underscore are private in SGLang as well.
"""
