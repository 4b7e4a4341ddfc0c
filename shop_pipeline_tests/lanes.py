"""`make test`: the suite in two lanes at once.

What runs on Dagster's real daemon mostly waits for its ticks, which come every 30 seconds; meanwhile the others are at work.
The tests that start commands in processes of their own run in the waiting lane as well.
Those in a browser need Debian's Chromium and are in neither (`make test-browser`).
"""

import subprocess
import sys
import tempfile

WAITING, WORKING = "(daemon or apart) and not browser", "not daemon and not apart and not browser"
# The slowest tests are named, so that a suite that grows is seen to.
_SHOWN = "--durations=25"


def main() -> int:
    """Run both lanes; the waiting one's output is shown at the end. Status 0 when both passed."""

    def pytest(marked: str) -> list[str]:
        return [sys.executable, "-m", "pytest", _SHOWN, "-m", marked, *sys.argv[1:]]

    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(pytest(WAITING), stdout=output, stderr=subprocess.STDOUT) as waiting:
            working = subprocess.run(pytest(WORKING), check=False).returncode
            waited = waiting.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
    return working or waited


if __name__ == "__main__":
    sys.exit(main())
