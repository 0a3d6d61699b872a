"""Checks of the Helm chart: lint, renderings of value sets, Kubernetes' schemas, and the rendered configuration."""
import json
import os
import pathlib
import re
import tempfile

import yaml
from helm_python.chart import Chart, lint
from jsonschema import Draft202012Validator
from kubernetes_validate import utils as kubernetes

from report import claim, output

HERE = pathlib.Path(__file__).parent
VERSION = "1.34"


class Rendered:
    """Kubernetes objects of a rendered chart."""

    def __init__(self, chart, values):
        self.objects = []
        for path, text in Chart.load(chart).render(values, name="edge", namespace="inference").items():
            if not path.endswith(".txt"):
                self.objects += [entry for entry in yaml.safe_load_all(text) if entry]

    def all(self, kind):
        return [entry for entry in self.objects if entry["kind"] == kind]

    def one(self, kind):
        found = self.all(kind)
        claim(len(found) == 1, f"{len(found)} objects of kind {kind} instead of one")
        return found[0]

    @property
    def pod(self):
        return self.one("Deployment")["spec"]["template"]["spec"]

    @property
    def container(self):
        return self.pod["containers"][0]

    @property
    def config(self):
        return self.one("ConfigMap")["data"]["conductor.toml"]


def probe_schemes(rendered):
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    return {rendered.container[probe]["httpGet"]["scheme"] for probe in probes}


def validate(rendered):
    """Validates every object strictly, and checks that names are unique. Returns the number of objects.

    The schema of PodMonitor has only the fields that the chart uses.
    """
    monitor = Draft202012Validator(json.loads((HERE / "podmonitor.schema.json").read_text()))
    for entry in rendered.objects:
        if entry["kind"] == "PodMonitor":
            problems = [error.message for error in monitor.iter_errors(entry)]
            claim(not problems, problems)
        else:
            kubernetes.validate(entry, VERSION, strict=True)
    names = [(entry["kind"], entry["metadata"]["name"]) for entry in rendered.objects]
    claim(len(set(names)) == len(names), f"two objects have the same kind and name: {names}")
    return f"{len(names)} objects"


def check_config(rendered, binary, policies):
    """Checks the rendered conductor.toml with `conductor check`. Only the warnings for a cluster are permitted."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "conductor.toml"
        file.write_text(rendered.config.replace('"/policies"', f'"{policies}"'))
        # Sets the container's environment variables, since the configuration reads keys from them.
        names = [variable["name"] for variable in rendered.container.get("env", [])]
        environment = os.environ | {name: "a-key-of-the-checks" for name in names}
        problems = json.loads(output(binary, "check", "--format", "json", file, env=environment))
    # The admin listener is open to the cluster. The key comes from a Secret; without one NOTES.txt has a warning.
    problems = [problem for problem in problems if problem["code"] not in ("open-listener", "plain-listener")]
    claim(not problems, problems)


def invariants(rendered):
    """Checks the properties that every value set must have."""
    pod, container, config = rendered.pod, rendered.container, rendered.config
    drain = [int(re.search(rf'^{key} = "(\d+)s"$', config, re.M)[1]) for key in ("drain-delay", "drain-timeout")]
    grace = pod["terminationGracePeriodSeconds"]
    claim(grace > sum(drain), f"the grace period of {grace} s is shorter than the drain of {drain} s")
    claim(container["readinessProbe"]["httpGet"]["path"] == "/readyz", "the readiness probe does not request /readyz")
    claim(container["securityContext"]["readOnlyRootFilesystem"], "the root file system is writable")
    claim(pod["securityContext"]["runAsNonRoot"], "the container may run as root")
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    claim("subPath" not in mounts["config"], "the ConfigMap is mounted by subPath, which gets no updates")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for key, port in (("listen", ports["http"]), ("admin-listen", ports["admin"])):
        claim(re.search(rf'^{key} = "(0\.0\.0\.0|\[::\]):{port}"$', config, re.M), f"{key} is not on port {port}")
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    for service in rendered.all("Service"):
        claim(service["spec"]["selector"].items() <= labels, "a Service does not select the pods")
        target_port = service["spec"]["ports"][0]["targetPort"]
        claim(target_port in ports, "the target port of a Service is not a port of the pods")
    if rendered.all("Role"):
        verbs = {verb for rule in rendered.one("Role")["rules"] for verb in rule["verbs"]}
        claim(verbs == {"get", "list", "watch"}, f"the verbs of the role are {verbs}")
    has_token = pod["automountServiceAccountToken"]
    claim(has_token == bool(rendered.all("Role")), "the token is mounted without a role, or a role has no token")


def of_default(rendered):
    kinds = {entry["kind"] for entry in rendered.objects}
    claim(kinds == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}, kinds)
    claim(rendered.one("Deployment")["spec"]["replicas"] == 2, "the deployment does not have two replicas")
    claim(probe_schemes(rendered) == {"HTTP"}, "the probes do not use HTTP for a listener without TLS")


def of_everything(rendered):
    rendered.one("Role"), rendered.one("RoleBinding")
    endpoint = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    is_https = probe_schemes(rendered) == {"HTTPS"} and endpoint["scheme"] == "https"
    claim(is_https, "probes or scrapes of the admin port do not use TLS")
    credentials = endpoint["authorization"]["credentials"]
    claim(credentials == {"name": "conductor-keys", "key": "admin-key"}, credentials)
    claim("replicas" not in rendered.one("Deployment")["spec"], "the deployment sets replicas despite the autoscaler")
    (metric,) = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    claim(metric["pods"]["metric"]["name"] == "conductor_queue_length", metric)
    peers = rendered.one("NetworkPolicy")["spec"]["ingress"]
    claim([rule["ports"][0]["port"] for rule in peers] == ["http", "admin"], peers)
    claim(rendered.container["env"][0]["name"] == "ADMIN_API_KEY", "the container has no ADMIN_API_KEY")


def of_external(rendered):
    (metric,) = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    claim(metric["external"]["metric"]["selector"]["matchLabels"] == {"pool": "main"}, metric)


def policies_from(key):
    def check(rendered):
        (volume,) = [volume for volume in rendered.pod["volumes"] if volume["name"] == "policies"]
        claim(key in volume, volume)
        claim(rendered.config.startswith('policy-dir = "/policies"\n'), "policy-dir is not set")

    return check


def of_nats(rendered):
    table = '[replicas]\nservers = ["nats://nats.inference:4222"]\nfleet = "edge"\nagreed-copies = 3\n'
    claim(table in rendered.config, rendered.config)
    annotations = rendered.one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    claim("conductor/restart-replicas" in annotations, "an edit of replicas.config does not restart the pods")


def of_closed(rendered):
    claim('\nlisten = "[::]:8080"\nadmin-listen = "[::]:8081"\n' in rendered.config, "the listeners are not on [::]")
    claim(len(rendered.all("Service")) == 1, "the admin port has a Service")
    claim(not rendered.all("ServiceAccount"), "the chart creates a service account")
    claim(rendered.pod["serviceAccountName"] == "existing", "the pod does not use the existing service account")
    claim(rendered.pod["terminationGracePeriodSeconds"] == 3600 + 20 + 15, "the grace period is wrong")
    (rule,) = rendered.one("NetworkPolicy")["spec"]["ingress"]
    claim(rule["ports"][0]["port"] == "http", "the network policy opens the admin port")


CLAIMS = {
    "default": of_default,
    "everything": of_everything,
    "external-metric": of_external,
    "policies-configmap": policies_from("configMap"),
    "policies-volume": policies_from("persistentVolumeClaim"),
    "policies-image": policies_from("image"),
    "nats": of_nats,
    "closed": of_closed,
}

# Invalid values, each with a part of the expected error message.
REFUSED = {
    "an unknown value": ({"replicaCout": 3}, "'replicaCout' not allowed"),
    "a number of the wrong type": ({"replicaCount": "many"}, "'/replicaCount': got string, want integer"),
    "an address other than all interfaces": ({"listenAddress": "::"}, "'/listenAddress': value must be one of"),
    "a second table [server]": ({"config": "[server]\nlisten = \"0.0.0.0:1\"\n"}, "'/config': 'not' failed"),
    "a drain-timeout beside `drain`": ({"serverConfig": 'drain-timeout = "1s"'}, "'/serverConfig': 'not' failed"),
    "an address that is not a NATS URL": (
        {"replicas": {"nats": {"url": "redis://a:1"}}},
        "'/replicas/nats/url': 'redis://a:1' does not match pattern",
    ),
    "a second table [replicas]": (
        {"replicas": {"nats": {"url": "nats://a:1"}}, "config": "[replicas]\nfleet = \"b\"\n"},
        "config: the chart writes [replicas]",
    ),
    "keys of [replicas] without servers": (
        {"replicas": {"config": 'fleet = "b"'}},
        "replicas.config needs replicas.nats.url",
    ),
    "two sources of policies": (
        {"policies": {"configMap": "a", "image": "b"}},
        "policies: name at most one of configMap",
    ),
    "an invalid scheme of probes": ({"probes": {"scheme": "https"}}, "'/probes/scheme': value must be one of"),
    "a scrape with an admin key that is not configured": (
        {"podMonitor": {"enabled": True, "authorization": True}},
        "podMonitor.authorization needs adminKey.existingSecret",
    ),
}


def check_refused(chart, values, reason):
    """Checks that a rendering fails with this reason. Returns the last line of the error."""
    try:
        Rendered(chart, values)
    except Exception as error:
        claim(reason in str(error), f"the chart refused the values for another reason: {error}")
        return str(error).strip().splitlines()[-1][:100]
    claim(False, "the chart accepted the values")


def check_lint(chart, values):
    """Checks that a strict lint reports no errors and no warnings."""
    result = lint(str(chart), values, strict=True)
    warnings = [message for message in result["messages"] if message["severity"] > 1]
    claim(not result["errors"] and not warnings, result)


def run(report, chart, binary, policies):
    """Runs all checks of the chart."""
    for name, check in CLAIMS.items():
        values = yaml.safe_load((HERE / "values" / f"{name}.yaml").read_text()) or {}

        def check_values(values=values, check=check):
            check_lint(chart, values)
            rendered = Rendered(chart, values)
            detail = validate(rendered)
            invariants(rendered)
            check(rendered)
            check_config(rendered, binary, policies)
            return detail

        report.check(f"chart, values {name}", check_values)
    for name, (values, reason) in REFUSED.items():
        report.check(f"chart refuses {name}", check_refused, chart, values, reason)
