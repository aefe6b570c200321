"""A demonstration on emulated servers: a real MPI program whose file gets a better layout."""
