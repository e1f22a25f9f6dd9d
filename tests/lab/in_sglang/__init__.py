"""What is measured inside SGLang's processes, or with PyTorch alone; the plans start it."""
