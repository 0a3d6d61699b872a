"""Checks of the Containerfile: hadolint, a build by buildah over a Debian root, and a start in the image."""
import os
import pathlib
import re
import subprocess
import tempfile

from install import on_free_ports, probed, status, until
from report import claim, output

BUILDAH = ["buildah", "--storage-driver", "vfs"]
IMAGE = "localhost/conductor-check"
BASE = "localhost/conductor-base"


def lint(root, hadolint):
    output(hadolint, root / "config/deploy/Containerfile")
    ignored = (root / ".dockerignore").read_text().splitlines()
    claim({"target/*", "target/packages/*", "!target/packages/conductor"} <= set(ignored), f"the context of a build has more: {ignored}")
    for page in ("config/deploy/Containerfile", "host/docs/operation/install.md"):
        # The default format, OCI, has no health check.
        claim("buildah build --format docker -f" in (root / page).read_text(), f"{page}: an image without health check")


def buildah(storage, *arguments):
    folders = ["--root", storage / "root", "--runroot", storage / "run"]
    return output(*BUILDAH, *folders, *arguments).strip()


def base(storage, archive):
    """Makes the base image of a Debian root, since no registry is needed for the check."""
    container = buildah(storage, "from", "scratch")
    buildah(storage, "add", "--quiet", container, archive, "/")
    buildah(storage, "commit", "--quiet", container, BASE)
    buildah(storage, "rm", container)


def built(root, storage):
    """Builds the image with the program of target/packages."""
    arguments = ["--build-arg", f"RUNTIME={BASE}", "--build-arg", f"BUILDER={BASE}", "--build-arg", "BINARY=prebuilt"]
    # The context is what the stage copies: not the whole of target.
    with tempfile.TemporaryDirectory() as folder:
        context = pathlib.Path(folder)
        for path in ("LICENSE", "NOTICE", "config/conductor.toml", "config/deploy/container.toml", "target/packages/conductor"):
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
    """Starts the router in a container of the image, on free ports, probes it and runs its health check."""
    container = buildah(storage, "from", "--pull-never", IMAGE)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "conductor.toml"
        text, listen, admin = on_free_ports((root / "config/deploy/container.toml").read_text())
        config.write_text(text.replace("0.0.0.0", "127.0.0.1"))
        os.chmod(folder, 0o755)
        buildah(storage, "copy", container, config, "/etc/conductor/conductor.toml")
        place = pathlib.Path(buildah(storage, "mount", container))
        # The user of the image, in its root: without a runtime of containers nothing else is different.
        run = ["chroot", "--userspec=65532:65532", place, "/usr/bin/conductor"]
        log = pathlib.Path(folder) / "router.log"
        with log.open("w") as output_file:
            command = [*run, "serve", "--config", "/etc/conductor/conductor.toml"]
            process = subprocess.Popen(command, stdout=output_file, stderr=output_file)
            healthy = [*run, "policy", "status", "--admin", f"http://127.0.0.1:{admin}"]
            until("/health answers", lambda: status(admin, "/health")[0] == 200, process)
            output(*healthy)
            code = probed(process, listen, admin)
        claim(code == 0, f"exit {code}: {log.read_text()[-2000:]}")
        claim(subprocess.run(healthy, capture_output=True).returncode != 0, "the health check passes without a router")
        # As JSON lines, by the configuration of the image.
        claim(re.search(r'^\{"timestamp"', log.read_text(), re.M), "the log is not JSON")
    buildah(storage, "umount", container)
    return f"exit {code} after SIGTERM"
