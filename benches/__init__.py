"""The figures of docs/benchmarks.md, each measured by one module here: `python -m benches [NAME...]`."""
