"""What `import stripewise` offers: files of pools, traces, signatures, plans, simulations."""
