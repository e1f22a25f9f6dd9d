"""The pages for people with a browser, rendered here and served by the admin plane below `/ui`."""
