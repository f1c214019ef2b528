"""Programs over a stand-in of their own, which they may break."""

import os
import subprocess
import sys
import textwrap

_HEAD = "from proof import stand_in\nmade = stand_in.load()\nimport cupy, numpy as np\n"


def alone(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process; the loaded stand-in is the program's `made`."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDML_TEST_STAND_IN"}
    command = [sys.executable, "-c", _HEAD + textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, env=inherited | environment)
