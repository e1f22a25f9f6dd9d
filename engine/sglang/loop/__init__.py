"""The scheduler's loop: at each safe point look (`view`), decide (`planner`), carry out (`launches`), and
read what was launched before (`results`, `findings`). `loop` puts them in order; `turn` is what one rank
tells the others."""
