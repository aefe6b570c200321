"""Trace, plan, place, verify: one cycle, kept only if it measured faster."""
