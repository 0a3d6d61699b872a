"""Checks of the Containerfile: hadolint, a build with buildah on a Debian root, and a start of the image."""
import os
import pathlib
import re
import subprocess
import tempfile

from install import on_free_ports, probe_and_stop, status, wait_until
from report import claim, output

BUILDAH = ["buildah", "--storage-driver", "vfs"]
IMAGE = "localhost/conductor-check"
BASE = "localhost/conductor-base"


def lint(root, hadolint):
    """Lints the Containerfile, and checks the build context and the documented build command."""
    output(hadolint, root / "config/deploy/Containerfile")
    ignored = (root / ".dockerignore").read_text().splitlines()
    required = {"target/*", "target/packages/*", "!target/packages/conductor"}
    claim(required <= set(ignored), f".dockerignore does not limit the build context: {ignored}")
    for page in ("config/deploy/Containerfile", "host/docs/operation/install.md"):
        # OCI, the default format, does not support health checks.
        command = "buildah build --format docker -f"
        claim(command in (root / page).read_text(), f"{page}: the build command makes an image without health check")


def buildah(storage, *arguments):
    folders = ["--root", storage / "root", "--runroot", storage / "run"]
    return output(*BUILDAH, *folders, *arguments).strip()


def base(storage, archive):
    """Makes the base image from a Debian root, so that the check needs no registry."""
    container = buildah(storage, "from", "scratch")
    buildah(storage, "add", "--quiet", container, archive, "/")
    buildah(storage, "commit", "--quiet", container, BASE)
    buildah(storage, "rm", container)


def built(root, storage):
    """Builds the image with the program of target/packages. Checks the user and the health check of the image."""
    arguments = ["--build-arg", f"RUNTIME={BASE}", "--build-arg", f"BUILDER={BASE}", "--build-arg", "BINARY=prebuilt"]
    # The build context has only the files that the stage copies, since a copy of the whole folder target takes long.
    with tempfile.TemporaryDirectory() as folder:
        context = pathlib.Path(folder)
        configs = ("config/conductor.toml", "config/deploy/container.toml")
        for path in ("LICENSE", "NOTICE", *configs, "target/packages/conductor"):
            (context / path).parent.mkdir(parents=True, exist_ok=True)
            (context / path).write_bytes((root / path).read_bytes())
        (context / "target/packages/conductor").chmod(0o755)
        build = ["build", "--isolation", "chroot", "--format", "docker", "--pull-never", "--layers=false"]
        buildah(storage, *build, *arguments, "-f", root / "config/deploy/Containerfile", "-t", IMAGE, context)
    user = buildah(storage, "inspect", "--type", "image", "--format", "{{.OCIv1.Config.User}}", IMAGE)
    claim(user == "65532:65532", f"the user is {user}")
    health = buildah(storage, "inspect", "--type", "image", "--format", "{{.Docker.Config.Healthcheck}}", IMAGE)
    claim("policy status" in health, f"the health check is {health}")
    return f"user {user}"


def started(root, storage):
    """Starts the router in a container of the image on free ports, probes it, and runs its health check."""
    container = buildah(storage, "from", "--pull-never", IMAGE)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "conductor.toml"
        text, listen, admin = on_free_ports((root / "config/deploy/container.toml").read_text())
        config.write_text(text.replace("0.0.0.0", "127.0.0.1"))
        os.chmod(folder, 0o755)
        buildah(storage, "copy", container, config, "/etc/conductor/conductor.toml")
        place = pathlib.Path(buildah(storage, "mount", container))
        # Runs as the image's user in its root file system, without a container runtime.
        run = ["chroot", "--userspec=65532:65532", place, "/usr/bin/conductor"]
        log = pathlib.Path(folder) / "router.log"
        with log.open("w") as output_file:
            command = [*run, "serve", "--config", "/etc/conductor/conductor.toml"]
            process = subprocess.Popen(command, stdout=output_file, stderr=output_file)
            healthy = [*run, "policy", "status", "--admin", f"http://127.0.0.1:{admin}"]
            wait_until("/health returns 200", lambda: status(admin, "/health")[0] == 200, process)
            output(*healthy)
            code = probe_and_stop(process, listen, admin)
        claim(code == 0, f"exit {code}: {log.read_text()[-2000:]}")
        completed = subprocess.run(healthy, capture_output=True)
        claim(completed.returncode != 0, "the health check succeeds without a running router")
        # The configuration of the image selects JSON lines.
        claim(re.search(r'^\{"timestamp"', log.read_text(), re.M), "the log is not JSON")
    buildah(storage, "umount", container)
    return f"exit {code} after SIGTERM"
