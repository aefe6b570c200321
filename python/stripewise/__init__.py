"""Stripewise: puts each part of each file where it is served fastest, on storage of fast and slow servers.

The command line (`stripewise --help`) is built on this package; everything that it does can be called from Python.
"""

from stripewise._native import StripewiseError, __version__

__all__ = ["StripewiseError", "__version__"]
