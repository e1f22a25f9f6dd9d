"""The scheduler's loop: at each safe point look (`view`), decide (`planner`), carry out (`launches`), and
read what was launched (`results`, `step_feedback`). `loop` puts them in order; `step_plan` is what one rank
tells the others."""
