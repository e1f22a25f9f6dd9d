"""One list of requests for every engine, what each answers in comparable form, and what may differ."""
