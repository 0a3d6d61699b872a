"""Results of the checks, one line each."""
import subprocess


class Report:
    """Counts the checks that passed and failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, run, *arguments):
        """Runs a check, which returns a text for its line or raises. Returns true if it passed."""
        try:
            detail = run(*arguments)
        except Exception as error:  # Any error of a check is its failure.
            self.failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
            return False
        self.passed += 1
        print(f"ok      {name}{': ' + str(detail) if detail else ''}", flush=True)
        return True


class Failure(Exception):
    """A claim that does not hold."""


def claim(holds, text):
    if not holds:
        raise Failure(text)


def output(*command, **options):
    """Runs a command and returns its output. Raises with all of it if the command fails."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    ended = subprocess.run([str(part) for part in command], **options)
    claim(ended.returncode == 0, f"{' '.join(map(str, command))}: exit {ended.returncode}\n{ended.stdout[-3000:]}")
    return ended.stdout
