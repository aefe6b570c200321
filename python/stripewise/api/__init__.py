"""What `import stripewise` offers: traces, signatures, plans and simulations, as objects with data frames."""
