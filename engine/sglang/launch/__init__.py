"""Starting a stock SGLang server with the plugin in force: arguments, checks, SGLang's own flags."""
