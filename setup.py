"""The Rust parts of the wheel; everything else stands in pyproject.toml.

Programs and the preload library are package data (`stripewise/_bin`, `stripewise/_lib`), found by path through
`stripewise.native_paths`: an environment that is not activated, or installed with `--user` or `--target`, works too.
"""

from setuptools import setup
from setuptools_rust import Binding, RustExtension, Strip

setup(
    rust_extensions=[
        RustExtension(
            "stripewise._native",
            path="crates/python/Cargo.toml",
            binding=Binding.PyO3,
            py_limited_api=True,
            debug=False,
            strip=Strip.Debug,
        ),
        RustExtension(
            "stripewise._lib.libstripewise_preload",
            path="crates/preload/Cargo.toml",
            binding=Binding.NoBinding,
            py_limited_api=True,
            debug=False,
            strip=Strip.Debug,
        ),
        RustExtension(
            {"stripewise-mount": "stripewise._bin.stripewise-mount"},
            path="crates/mount/Cargo.toml",
            binding=Binding.Exec,
            debug=False,
            strip=Strip.Debug,
        ),
        RustExtension(
            {"stripewise-bench": "stripewise._bin.stripewise-bench"},
            path="crates/bench/Cargo.toml",
            binding=Binding.Exec,
            debug=False,
            strip=Strip.Debug,
        ),
        RustExtension(
            {"stripewise-agent": "stripewise._bin.stripewise-agent"},
            path="crates/agent/Cargo.toml",
            binding=Binding.Exec,
            debug=False,
            strip=Strip.Debug,
        ),
    ],
    # abi3: one wheel serves 3.11 and every later version.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
