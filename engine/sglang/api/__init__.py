"""Every name of SGLang that is used, once, with its type; and the check that SGLang still has them."""
