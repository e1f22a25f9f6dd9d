"""What is measured inside SGLang's processes, or with PyTorch alone; `pdmuxd bench` starts it."""
