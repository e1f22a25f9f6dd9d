"""What the loop asks of an engine, carried out by SGLang: its scheduler, its model, its graphs."""
