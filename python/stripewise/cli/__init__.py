"""The `stripewise` command: one file a command, all in one voice (`console`)."""

import signal
import threading

# Ctrl-C while modules are imported ends the command without a traceback: `main` is not there to say so.
_IS_COMMAND = (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
)
if _IS_COMMAND:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    from stripewise.cli.app import main
finally:
    if _IS_COMMAND:
        signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["main"]
