"""Checks of rules, alerts and boards, by the HTTP API of a Prometheus that scrapes a router."""

import json
import re

from stack import Failure, get

# Variables of Grafana and their ranges, as in a browser with "All" selected.
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
RANGES = {"__rate_interval": "15s", "__interval": "5s", "__range": "1m"}

# Metric families without a series in the rig, each with the reason.
ABSENT = {
    "conductor_edge_tls_certificate_expiry_timestamp_seconds": "the rig has no TLS",
    "conductor_store_feed_live": "the rig has no KV store",
    "conductor_store_feed_lag_seconds": "the rig has no KV store",
    "conductor_store_feed_last_event_age_seconds": "the rig has no KV store",
    **{f"conductor_store_feed_{what}_total": "the rig has no KV store"
       for what in ("batches", "stored", "removed", "resets", "rejected", "rejected_messages", "refused")},
    "conductor_store_publishes": "the rig has no KV store",
    "conductor_store_dropped_events_total": "the rig has no KV store",
    "conductor_pd_bootstrap_engines": "only prefill workers of mooncake-connector have a bootstrap server",
    "conductor_kv_feed_rejected_total": "no event is rejected",
    "conductor_kv_feed_refused_total": "no connection is refused",
    "conductor_keep_alive_comments_total": "sse-keep-alive is off",
    "conductor_pipeline_scorers_left_out_total": "no scorer fails",
    "conductor_pipeline_filters_ignored_total": "no filter is ignored",
    "conductor_policy_rollbacks_total": "no policy is rolled back",
    "conductor_policy_events_total": "no policy of the rig listens to events",
    "conductor_policy_event_faults_total": "no policy of the rig listens to events",
    "conductor_policy_ticks_total": "no policy of the rig has ticks",
    "conductor_worker_cost_transfer_error_ratio": "the engines of the rig transfer no KV cache, so the error is unknown",
    **{f"conductor_replicas_{what}": "the rig has one router, without [replicas]"
       for what in ("connected", "live", "silent", "delay_seconds", "sent_messages_total", "received_messages_total",
                    "missing_messages_total", "dropped_messages_total", "agreement_synced", "agreed_entries",
                    "agreed_proposals", "agreed_not_followed", "agreed_early_start", "agreed_accepted_total",
                    "agreed_superseded_total", "agreed_restored_total", "agreed_refused_total", "refused_messages_total",
                    "expired_total", "limit_divisor", "sent_bytes_total", "received_bytes_total", "index_fetches_total",
                    "index_fetched_bytes_total", "index_given_total", "index_given_bytes_total")},
}


def substitute(expr):
    """Returns the expression with values in place of its variables."""
    return VARIABLE.sub(lambda found: RANGES.get(found.group(1), ".*"), expr)


def families(expr):
    """Returns the metric families that an expression reads. A histogram has its base name."""
    names = re.findall(r"(?<![\w:])conductor_\w+(?![\w:])", expr)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


class Prometheus:
    """Client of a Prometheus server, with the list of failed checks."""

    def __init__(self, url):
        self.url = url
        self.problems = []
        self.empty = []
        self.checked = 0

    def query(self, expr):
        """Returns the result of an instant query."""
        return self.result("query", {"query": expr})

    def over_time(self, expr, start, end):
        """Returns the result of a range query."""
        return self.result("query_range", {"query": expr, "start": start, "end": end, "step": "1s"})

    def result(self, api, query):
        return self.page(api, query)["result"]

    def page(self, api, query):
        page = get(f"{self.url}/api/v1/{api}", query)
        if page["status"] != "success":
            raise Failure(page.get("error", "Prometheus reported no error text"))
        return page["data"]

    def check(self, where, expr, values, legend=""):
        """Checks that an expression parses and returns series with the labels of its legend.

        An expression that reads a family of ABSENT may return no series.
        """
        self.checked += 1
        parsed = get(f"{self.url}/api/v1/format_query", {"query": expr})
        if parsed["status"] != "success":
            self.problems.append(f"{where}: {parsed['error']}: {expr}")
            return
        try:
            found = values(expr)
        except Failure as error:
            self.problems.append(f"{where}: {error}: {expr}")
            return
        reasons = [ABSENT[name] for name in sorted(families(expr)) if name in ABSENT]
        if not found and reasons:
            self.empty.append(f"{where}: {reasons[0]}")
        elif not found:
            self.problems.append(f"{where}: no series: {expr}")
        for label in re.findall(r"{{(\w+)}}", legend):
            if found and not any(label in series["metric"] for series in found):
                self.problems.append(f"{where}: no series has the label {label} of the legend: {expr}")

    def check_syntax(self, where, expr):
        """Checks that Prometheus accepts a query. An empty result is valid."""
        self.check(where, expr, lambda expr: [*self.query(expr), {"metric": {}}])

    def check_absent(self):
        """Checks that the families of ABSENT have no series, so that the list stays correct."""
        for name in ABSENT:
            if self.query(f'{{__name__=~"{name}(_bucket)?"}}'):
                self.problems.append(f"{name} has series: remove it from ABSENT in tests/observability/checks.py")


def check_board(prometheus, path, start, end):
    """Checks every query of a board: variables, annotations and panels. Returns the number of queries."""
    board = json.loads(path.read_text())
    before = prometheus.checked
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            expr = f'group by ({label}) ({substitute(metric)})'
            prometheus.check(f"{path.name}: variable {variable['name']}", expr, prometheus.query)
    for note in board["annotations"]["list"]:
        prometheus.check(f"{path.name}: annotation {note['name']}", substitute(note["expr"]),
                         lambda expr: prometheus.over_time(expr, start, end))
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            legend = "" if panel["type"] == "table" else target["legendFormat"]
            prometheus.check(f"{path.name}: {panel['title']}", substitute(target["expr"]), prometheus.query, legend)
    return prometheus.checked - before


def check_rules(prometheus):
    """Checks that every rule is healthy, every recorded name has series, and every alert reads existing families.

    Returns the numbers of recording rules and of alerts.
    """
    recorded = alerts = 0
    for group in get(f"{prometheus.url}/api/v1/rules")["data"]["groups"]:
        for rule in group["rules"]:
            name = rule["name"]
            if rule["health"] != "ok":
                prometheus.problems.append(f"{name}: {rule['health']}: {rule.get('lastError')}")
            if rule["type"] == "recording":
                recorded += 1
                prometheus.check(name, rule["query"], lambda _, name=name: prometheus.query(f'{{__name__="{name}"}}'))
            else:
                alerts += 1
                for family in families(rule["query"]) - ABSENT.keys():
                    prometheus.check(name, f'{{__name__=~"{family}(_bucket)?"}}', prometheus.query)
    if not recorded or not alerts:
        prometheus.problems.append(f"Prometheus has {recorded} recording rules and {alerts} alerts")
    return recorded, alerts


def check_runbook(prometheus, text):
    """Checks the queries of the runbook's sections. Returns the number of queries."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    queries = [line for line in lines if not line.startswith(("curl ", "promtool "))]
    for query in queries:
        prometheus.check_syntax("runbook", query)
    return len(queries)
