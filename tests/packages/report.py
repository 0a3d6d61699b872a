"""Report of the checks, with one line for each."""
import subprocess


class Report:
    """Printer and counter of passed and failed checks."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, run, *arguments):
        """Runs a check and prints its line. Returns true if it passed.

        The check returns a text for the line, and raises an exception if it fails.
        """
        try:
            detail = run(*arguments)
        except Exception as error:  # Any exception means that the check failed.
            self.failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
            return False
        self.passed += 1
        print(f"ok      {name}{': ' + str(detail) if detail else ''}", flush=True)
        return True


class Failure(Exception):
    """A failed check."""


def claim(holds, text):
    """Raises Failure with the text unless the claim holds."""
    if not holds:
        raise Failure(text)


def output(*command, **options):
    """Runs a command and returns its output. Raises Failure with the end of the output if the command fails."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    completed = subprocess.run([str(part) for part in command], **options)
    text = f"{' '.join(map(str, command))}: exit {completed.returncode}\n{completed.stdout[-3000:]}"
    claim(completed.returncode == 0, text)
    return completed.stdout
