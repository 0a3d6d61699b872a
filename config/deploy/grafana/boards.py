"""Tables of the boards: rows of panels with their queries. generate.py makes Grafana's JSON of them.

In queries `@router`, `@pool`, `@worker`, `@policy` and `@arm` are the matchers of the board's variables, and `@range`
is the range of rates.
"""

RANGE = "$__rate_interval"

# Label of a variable, and its query. Each is limited by the ones before it.
ROUTERS = 'job=~"$job", instance=~"$instance"'
VARIABLES = {
    "job": ("Job", "label_values(conductor_config_generation, job)"),
    "instance": ("Router", 'label_values(conductor_config_generation{job=~"$job"}, instance)'),
    "pool": ("Pool", f"label_values(conductor_queue_length{{{ROUTERS}}}, pool)"),
    "worker": ("Worker", f"label_values(conductor_worker_pending{{{ROUTERS}}}, worker)"),
    "policy": ("Policy", f"label_values(conductor_policy_fallbacks_total{{{ROUTERS}}}, policy)"),
}

ERRORS = "upstream-error|unreachable|first-byte-timeout|idle-timeout|request-timeout|queue-timeout|shut-down"


def chart(title, unit, do, *queries, width=8, **more):
    """Returns a chart over time. Queries are (expression, legend)."""
    return {"type": "timeseries", "title": title, "unit": unit, "do": do, "queries": queries, "width": width, **more}


def stat(title, unit, do, expr, width=4, **more):
    """Returns a single number."""
    return {"type": "stat", "title": title, "unit": unit, "do": do, "queries": [(expr, title)], "width": width, **more}


def table(title, do, *queries, width=24):
    """Returns a table of the newest values. Queries are (expression, column)."""
    return {"type": "table", "title": title, "unit": "short", "do": do, "queries": queries, "width": width}


def quantiles(title, metric, by, labels, do, width=8):
    """Returns a chart of the median, the 95th and the 99th percentile."""
    queries = [
        (f"histogram_quantile({q}, sum by ({by}, le) (rate({metric}_bucket{{{labels}}}[@range])))",
         f"p{round(q * 100)} {{{{{by}}}}}")
        for q in (0.5, 0.95, 0.99)
    ]
    return chart(title, "s", do, *queries, width=width)


def rate(metric, by, labels):
    """Returns a query of a counter's rate, and its legend."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return (f"sum by ({by}) (rate({metric}{{{labels}}}[@range]))", legend)


OVERVIEW = [
    ("Objectives", [
        stat("Requests", "reqps", "Compare it with the same hour of yesterday. A sudden fall means that clients cannot reach the router.",
             "sum(rate(conductor_requests_total{@pool}[@range]))"),
        stat("Failed requests", "percentunit", "Above 1.44 % the monthly budget of 0.1 % lasts two days: see ConductorErrorBudgetFast.",
             f'sum(rate(conductor_requests_total{{@pool, outcome=~"{ERRORS}"}}[@range])) / sum(rate(conductor_requests_total{{@pool, outcome=~"complete|{ERRORS}"}}[@range]))',
             zero=True, bad=0.0144),
        stat("First token, p95", "s", "Above 2 s see ConductorTimeToFirstTokenHigh: compare queue, load and cache below.",
             "histogram_quantile(0.95, sum by (le) (rate(conductor_time_to_first_token_seconds_bucket{@pool}[@range])))", bad=2),
        stat("Queued", "short", "Requests wait for a worker. If the number stays and nothing is completed, see ConductorQueueStuck.",
             "sum(conductor_queue_length{@pool})", zero=True),
        stat("Workers out of service", "short", "Open the fleet board and look for the reason on /status.",
             "sum(max by (worker) (clamp_max(conductor_worker_ejected{@router} + conductor_worker_pending{@router}, 1)))", zero=True, bad=1),
        stat("Configuration accepted", "bool_yes_no", "No: the newest file is refused. Run conductor check; see ConductorConfigRefused.",
             "min(conductor_config_last_reload_successful{@router})", bad=1, bad_below=True),
    ]),
    ("Requests", [
        chart("Requests by outcome", "reqps", "Look for an outcome that grows. The page Metrics has the meaning of each.",
              rate("conductor_requests_total", "pool, outcome", "@pool"), stack=True),
        chart("Failures by outcome", "reqps", "unreachable, upstream-error: the fleet board. Timeouts: compare them with the load. queue-timeout: add capacity.",
              rate("conductor_requests_total", "pool, outcome", f'@pool, outcome=~"{ERRORS}"'), zero=True),
        chart("Share of failures, by window", "percentunit", "Two lines above 1.44 % (5m, 1h) page; two above 0.6 % (30m, 6h) are a ticket.",
              *((f'pool:conductor_request_errors:ratio_rate{window}{{job=~"$job", pool=~"$pool"}}', f"{window} {{{{pool}}}}")
                for window in ("5m", "30m", "1h", "6h")), zero=True),
        chart("Requests turned away", "reqps", "Above zero for long: too little capacity, or budgets too small. See ConductorShedding.",
              rate("conductor_requests_total", "pool, outcome", '@pool, outcome=~"shed|queue-full|queue-timeout|rejected-early|bodies-full|limited|rejected"'), zero=True),
        chart("Answers by status", "reqps", "4xx: the clients. 5xx: compare it with the failures by outcome; a worker's own 500 is relayed.",
              rate("conductor_requests_answered_total", "pool, code", "@pool"), stack=True),
        chart("Requests by model", "reqps", "other: names that neither the configuration nor a worker has.",
              ("sum by (pool, model) (rate(conductor_request_duration_seconds_count{@pool}[@range]))", "{{pool}} {{model}}"), stack=True),
        chart("Requests in flight", "short", "It grows while requests arrive faster than they are answered.",
              ("sum by (pool) (conductor_requests_in_flight{@pool})", "{{pool}}"), zero=True),
        chart("Requests by endpoint", "reqps", "Shows the mix of the traffic. A new endpoint explains changes of latency.",
              rate("conductor_endpoint_requests_total", "endpoint", "@router"), stack=True),
        chart("Retries", "reqps", "paid: workers fail. over-budget: clients get the failed answer; see ConductorRetryBudgetExhausted.",
              rate("conductor_retries_total", "pool, kind", "@pool"), zero=True),
    ]),
    ("Latency", [
        quantiles("Time to first token", "conductor_time_to_first_token_seconds", "pool", "@pool",
                  "If only p99 rises, look for one slow worker. If all rise, look at the queue and at the reuse of the cache."),
        quantiles("Whole request", "conductor_request_duration_seconds", "pool", "@pool",
                  "If it rises while the first token does not, answers are longer or decoding is slower: look at the load of the workers."),
        quantiles("Time per output token", "conductor_time_per_output_token_seconds", "pool", "@pool",
                  "The speed of reading. If it rises with the decoding requests, decode workers are full."),
        quantiles("Longest pause of a stream", "conductor_stream_longest_pause_seconds", "pool", "@pool",
                  "What readers notice. High pauses at a normal time per token: preemption or a slow network."),
        quantiles("Overhead of the router", "conductor_overhead_seconds", "pool", "@pool",
                  "Without body and queue. Compare it with the stages: tokens and decide are most of it."),
        chart("Mean time of the stages", "s", "The stage that grows is the cause. first-byte is the worker's.",
              ("sum by (pool, stage) (rate(conductor_stage_seconds_sum{@pool}[@range])) / sum by (pool, stage) (rate(conductor_stage_seconds_count{@pool}[@range]))", "{{pool}} {{stage}}")),
        chart("Output tokens", "short", "Tokens a second of all answers: the work that the fleet gets done.",
              rate("conductor_output_tokens_total", "pool, model", "@pool"), stack=True),
        quantiles("Wait in the queue", "conductor_queue_wait_seconds", "pool", "@pool",
                  "Compare it with the time to first token. If it is most of it, add workers or raise budgets."),
        chart("Queue", "short", "A queue that only grows needs capacity. Classes: sheddable is turned away first.",
              ("sum by (pool, class) (conductor_queue_waiting{@pool})", "{{pool}} {{class}}"),
              ("sum by (pool) (conductor_queue_length{@pool})", "{{pool}} all"), zero=True),
        chart("Oldest wait", "s", "It falls when the queue moves. A straight line upwards: see ConductorQueueStuck.",
              ("max by (pool) (conductor_queue_oldest_wait_seconds{@pool})", "{{pool}}"), zero=True),
        chart("Admission", "reqps", "held means that budgets are used up. shed and rejected-early mean that clients got 429 or 503.",
              rate("conductor_admission_total", "pool, result", "@pool"), zero=True),
        chart("Use of budgets", "percentunit", "At 100 % requests wait. Raise the budget only if the engines have room.",
              ("sum by (pool, budget) (conductor_budget_used{@pool}) / sum by (pool, budget) (conductor_budget_limit{@pool})", "{{pool}} {{budget}}"), zero=True),
    ]),
    ("Cache", [
        chart("Prompt tokens", "short", "The funnel of reuse, in tokens a second. prompt to best: new prompts. best to matched: the policy chose another worker. matched to cached: the index was wrong.",
              ("sum by (pool) (rate(conductor_prompt_tokens_total{@pool}[@range]))", "{{pool}} prompt"),
              ("sum by (pool) (rate(conductor_best_match_tokens_total{@pool}[@range]))", "{{pool}} best"),
              ("sum by (pool) (rate(conductor_matched_tokens_total{@pool}[@range]))", "{{pool}} matched"),
              ("sum by (pool) (rate(conductor_cached_tokens_total{@pool}[@range]))", "{{pool}} cached")),
        chart("Share of cached tokens", "percentunit", "Matched above cached: the index is optimistic, or answers lack usage. Cached above matched: see ConductorIndexUnderestimates.",
              ("sum by (pool) (rate(conductor_matched_tokens_total{@pool}[@range])) / sum by (pool) (rate(conductor_prompt_tokens_total{@pool}[@range]))", "{{pool}} matched"),
              ("sum by (pool) (rate(conductor_cached_tokens_total{@pool}[@range])) / sum by (pool) (rate(conductor_reported_prompt_tokens_total{@pool}[@range]))", "{{pool}} cached"), min=0),
        chart("Prompts by source of their tokens", "reqps", "timeout, failed, queue-full: these prompts are placed without the index. See ConductorTokenizationFails.",
              rate("conductor_tokenized_total", "pool, outcome", "@pool"), stack=True),
    ]),
    ("Clients", [
        chart("Requests by client", "reqps", "One client that grows explains the load. Limits are keys of [clients].",
              rate("conductor_client_requests_total", "client", "@router"), stack=True),
        chart("Refused requests by client", "reqps", "wrong-key and no-key: a client with an old key, or an attack. requests, tokens, concurrent: its limit.",
              rate("conductor_client_refusals_total", "client, reason", "@router"), zero=True),
        chart("Tokens by client", "short", "Tokens a second of prompts and answers, for the budget of a client.",
              rate("conductor_client_tokens_total", "client, kind", "@router"), stack=True),
    ]),
    ("Connections", [
        chart("Running requests by client", "short", "Compare it with the client's limit of concurrent requests.",
              ("sum by (client) (conductor_client_requests_running{@router})", "{{client}}")),
        chart("Answers with an implausible usage", "reqps", "A worker reports more tokens than it can have computed: limits of tokens use the router's count.",
              rate("conductor_client_implausible_usage_total", "client", "@router"), zero=True),
        chart("Accepted connections", "reqps", "Many for few requests: a client or load balancer without connection reuse.",
              rate("conductor_edge_connections_total", "listener, protocol", "@router"),
              ("sum by (instance) (rate(conductor_edge_tls_handshakes_total{@router}[@range]))", "{{instance}} TLS handshakes"),
              ("sum by (instance) (rate(conductor_edge_http2_requests_total{@router}[@range]))", "{{instance}} HTTP/2 requests")),
        chart("WebSockets", "Bps", "Bytes relayed by direction.", rate("conductor_realtime_bytes_total", "direction", "@router")),
        chart("Keep-alive comments", "reqps", "Streams that wait for their first token longer than sse-keep-alive.",
              rate("conductor_keep_alive_comments_total", "pool", "@pool"), zero=True),
        chart("Known response ids", "short", "At the limit of response-ids the oldest are forgotten.",
              ("conductor_response_ids{@router}", "{{instance}}")),
    ]),
    ("Router", [
        chart("Memory", "bytes", "Near the limit the router sheds load: see ConductorMemoryShedding.",
              ("conductor_memory_resident_bytes{@router}", "{{instance}} resident"),
              ("conductor_memory_limit_bytes{@router}", "{{instance}} limit"),
              ("conductor_body_bytes{@router}", "{{instance}} bodies"),
              ("conductor_body_bytes_limit{@router}", "{{instance}} limit of bodies"),
              ("conductor_index_bytes{@router}", "{{instance}} index"), min=0),
        chart("Stage of shed load", "short", "1 frees caches, 2 rejects requests, 3 ends bodies in transfer.",
              ("conductor_memory_stage{@router}", "{{instance}}"),
              ("increase(conductor_memory_stage_changes_total{@router}[@range])", "{{instance}} changes"), zero=True),
        chart("Client connections", "short", "Near the limit further ones wait: see ConductorConnectionsFull.",
              ("conductor_client_connections{@router}", "{{instance}}"),
              ("conductor_client_connections_limit{@router}", "{{instance}} limit"),
              ("conductor_realtime_connections{@router}", "{{instance}} WebSockets"),
              ("conductor_unfinished_bodies{@router}", "{{instance}} bodies in transfer"), min=0),
        chart("Connections and requests turned away", "reqps", "Find the reason in the page Listeners. Floods and malformed heads are attacks or broken clients.",
              rate("conductor_edge_turned_away_total", "reason", "@router"), rate("conductor_pages_turned_away_total", "listener, reason", "@router"), zero=True),
        chart("Days until certificates expire", "d", "Below 14 renew the certificate: see ConductorCertificateExpires.",
              ("(conductor_edge_tls_certificate_expiry_timestamp_seconds{@router} - time()) / 86400", "{{instance}} {{listener}}")),
        chart("Generations of the configuration", "short", "Routers of one job with different numbers did not get the same edits.",
              ("conductor_config_generation{@router}", "{{instance}}"),
              ("conductor_config_reloads_total{@router}", "{{instance}} files {{result}}"),
              ("conductor_instance_overlays{@router}", "{{instance}} overlays {{kind}}")),
        chart("Changes", "short", "What changed when the curves did: /admin/changes has each with its cause.",
              ("increase(conductor_changes_total{@router}[@range])", "{{instance}} {{kind}}"), zero=True),
    ]),
]

FLEET = [
    ("Workers", [
        table("Workers", "Sort by a column. A worker with requests and an old load is hung; an ejected one has its reason on /status.",
              ("max by (worker) (conductor_worker_ejected{@worker})", "ejected"),
              ("max by (worker) (conductor_worker_pending{@worker})", "pending"),
              ("max by (worker) (conductor_worker_returning{@worker})", "returning"),
              ("sum by (worker) (conductor_worker_requests_in_flight{@worker})", "in flight"),
              ("sum by (worker) (conductor_worker_requests_decoding{@worker})", "decoding"),
              ("sum by (worker) (conductor_worker_prefill_tokens{@worker})", "prefill tokens"),
              ("max by (worker) (conductor_worker_ttft_ewma_seconds{@worker})", "first token (s)"),
              ("max by (worker) (conductor_worker_load_age_seconds{@worker})", "age of load (s)"),
              ("sum by (worker) (rate(conductor_worker_attempts_total{@worker}[5m]))", "attempts/s"),
              ("sum by (worker) (rate(conductor_worker_failures_total{@worker}[5m]))", "failures/s")),
    ]),
    ("Load", [
        chart("Requests in flight", "short", "The lines should be close. One far above the others: see ConductorLoadSkew.",
              ("sum by (worker) (conductor_worker_requests_in_flight{@worker})", "{{worker}}")),
        chart("Share of the requests in flight", "percentunit", "With weights of 1 each worker has about the same share, unless prompts share prefixes.",
              ('worker:conductor_worker_requests_in_flight:share{job=~"$job", worker=~"$worker"}', "{{worker}}"), zero=True),
        chart("Attempts", "reqps", "Compare with the load: few attempts and many requests mean slow answers.",
              rate("conductor_worker_attempts_total", "worker", "@worker")),
        chart("Requests that decode", "short", "Many decoding requests slow each other down.",
              ("sum by (worker) (conductor_worker_requests_decoding{@worker})", "{{worker}}")),
        chart("Prompt tokens to compute", "short", "Uncached tokens before their first token: the cause of a slow first token.",
              ("sum by (worker) (conductor_worker_prefill_tokens{@worker})", "{{worker}}")),
        chart("Time to first token (moving average)", "s", "One worker above the others is slow: drain it and look at its engine.",
              ("max by (worker) (conductor_worker_ttft_ewma_seconds{@worker})", "{{worker}}")),
    ]),
    ("Health", [
        chart("Out of service", "short", "1 while ejected, busy or unhealthy. The reason is on /status.",
              ("max by (worker) (conductor_worker_ejected{@worker})", "{{worker}} ejected"),
              ("max by (worker) (conductor_worker_pending{@worker})", "{{worker}} pending"),
              ("max by (worker) (conductor_worker_returning{@worker})", "{{worker}} returning"), max=1, min=0),
        chart("Failures", "reqps", "connect and closed: the process or the network. server-error: the engine's log. See ConductorWorkerErrors.",
              rate("conductor_worker_failures_total", "worker, kind", "@worker"), zero=True),
        chart("Share of failed attempts", "percentunit", "Above 5 % see ConductorWorkerErrors.",
              ('worker:conductor_worker_failures:ratio_rate5m{job=~"$job", worker=~"$worker"}', "{{worker}}"), zero=True),
        chart("Ejections", "short", "Many at once: the network, a rollout, or a request that crashes engines. See ConductorEjectionStorm.",
              ("sum by (worker, cause) (increase(conductor_worker_ejections_total{@worker}[@range]))", "{{worker}} {{cause}}"), zero=True),
        chart("Health probes", "reqps", "timeout: the engine is overloaded. unreachable: it is down. no-page: correct the health path.",
              rate("conductor_worker_probes_total", "worker, result", '@worker, result!="passed"'), zero=True),
        chart("Open connections", "short", "More connections than requests in flight is normal. A number that only grows is not: look at timeouts.",
              ("sum by (worker) (conductor_worker_connections{@worker})", "{{worker}}")),
    ]),
    ("Knowledge of the engines", [
        chart("Age of the engine's load", "s", "Above a minute policies decide by old values: see ConductorLoadUnknown.",
              ("max by (worker) (conductor_worker_load_age_seconds{@worker})", "{{worker}}")),
        chart("Scrapes of the load", "reqps", "nothing and no-page: set the path of [pools.NAME.scrape]. failed: the engine is slow or down.",
              rate("conductor_worker_scrapes_total", "worker, result", "@worker")),
        chart("Queries of the model list", "reqps", "changed: models or adapters were loaded. failed and invalid: requests may go to a worker without the model.",
              rate("conductor_worker_model_refreshes_total", "worker, result", "@worker")),
        chart("Error of predicted prefill times", "percentunit", "Above 50 % policies that use cost.prefill-ms place badly. The engine's load changed, or other traffic reaches it.",
              ("max by (worker) (conductor_worker_cost_prefill_error_ratio{@worker})", "{{worker}}")),
        chart("Error of predicted transfer times", "percentunit", "Only with separate prefill and decode. Above 50 % the network between the engines changes.",
              ("max by (worker) (conductor_worker_cost_transfer_error_ratio{@worker})", "{{worker}}")),
        chart("Error of predicted times between tokens", "percentunit", "Above 50 % the automatic budget of requests is unreliable.",
              ("max by (worker) (conductor_worker_cost_tbt_error_ratio{@worker})", "{{worker}}")),
    ]),
]

POLICIES = [
    ("Decisions", [
        chart("Verdicts", "reqps", "queue: the policy holds requests. reject: clients get its refusal. pass: the fallback decides.",
              rate("conductor_policy_decisions_total", "policy, verdict", "@policy"), stack=True),
        quantiles("Time of a call", "conductor_policy_decision_seconds", "policy", "@policy",
                  "A call holds up its thread. Above 1 ms simplify the policy, or lower the number of candidates."),
        quantiles("Time to gather the numbers", "conductor_policy_gather_seconds", "policy", "@policy",
                  "Candidates, index and columns. It grows with workers and prompt lengths."),
        chart("Candidates of a call", "short", "Mean number of workers that a policy chooses from. Fewer than the pool has: ejected workers, or models that few serve.",
              ("sum by (pool) (rate(conductor_decision_candidates_sum{@router}[@range])) / sum by (pool) (rate(conductor_decision_candidates_count{@router}[@range]))", "{{pool}}")),
        chart("Share of fallback decisions", "percentunit", "Above 1 % see ConductorPolicyFallback.",
              ('policy:conductor_policy_fallbacks:ratio_rate5m{job=~"$job", policy=~"$policy"}', "{{policy}}"), zero=True),
        chart("Faults", "reqps", "trap and invalid-verdict: an error in the policy. deadline: too slow, or an overloaded machine. Roll back.",
              rate("conductor_policy_faults_total", "policy, kind", "@policy"), zero=True),
        chart("Skipped parts of pipelines", "reqps", "A scorer or filter did not count: see ConductorScorerLeftOut.",
              rate("conductor_pipeline_scorers_left_out_total", "policy, scorer", "@policy"),
              rate("conductor_pipeline_filters_ignored_total", "policy, filter", "@policy"), zero=True),
    ]),
    ("Versions", [
        table("Active versions", "Routers with different versions of one policy did not get the same file.",
              ("conductor_policy_active{@policy} == 1", "active"), width=8),
        chart("Open and half-open circuits", "short", "1: the version is not called, or only probed. See ConductorPolicyCircuitOpen.",
              ('max by (policy, version, state) (conductor_policy_circuit_state{@policy, state!="closed"})', "{{policy}} {{version}} {{state}}"), max=1, min=0),
        chart("Changes of versions, since the start", "short", "refused: see ConductorPolicyRefused. A rollback by circuit means that new bytes failed.",
              ("sum by (policy, result) (conductor_policy_versions_total{@policy})", "{{policy}} {{result}}"),
              ("sum by (policy, cause) (conductor_policy_rollbacks_total{@policy})", "{{policy}} rollback {{cause}}"),
              ("sum by (policy) (conductor_policy_circuit_openings_total{@policy})", "{{policy}} circuit opened"), zero=True),
        chart("Compilations, since the start", "short", "Results other than done: the component is too large or hostile.",
              ("sum by (result) (conductor_policy_compilations_total{@router})", "{{result}}"), zero=True),
        chart("Files of compiled code", "short", "Rejected files: see ConductorPolicyCacheRejected.",
              ("sum by (what) (increase(conductor_policy_cache_files_total{@router}[@range]))", "{{what}}"),
              ("sum by (why) (increase(conductor_policy_cache_rejected_total{@router}[@range]))", "rejected {{why}}"), zero=True),
    ]),
    ("State and events", [
        chart("Keys and sessions", "short", "Sessions at the limit are evicted: raise `sessions`.",
              ("sum by (policy) (conductor_policy_state_keys{@policy})", "{{policy}} keys"),
              ("sum by (policy) (conductor_policy_sessions{@policy})", "{{policy}} sessions"),
              ("sum by (policy) (rate(conductor_policy_sessions_evicted_total{@policy}[@range]))", "{{policy}} evicted/s")),
        chart("Events and ticks", "reqps", "dropped: the policy is too slow for its events. Faults: an error in its handler.",
              rate("conductor_policy_events_total", "policy, result", "@policy"),
              rate("conductor_policy_event_faults_total", "policy, kind", "@policy"),
              rate("conductor_policy_ticks_total", "policy", "@policy"), zero=True),
        chart("State files", "reqps", "Failures: the disk of policy-state. See ConductorPolicyStateFailures.",
              ("sum by (instance) (rate(conductor_policy_state_written_total{@router}[@range]))", "{{instance}} written"),
              ("sum by (instance) (rate(conductor_policy_state_failures_total{@router}[@range]))", "{{instance}} failed"),
              ("sum by (instance) (rate(conductor_policy_state_damaged_total{@router}[@range]))", "{{instance}} damaged"), zero=True),
    ]),
    ("Canaries", [
        chart("Share of the sessions", "percentunit", "The configured split. A stopped canary keeps its share here; its requests go to the control.",
              ("max by (pool, route, policy) (conductor_arm_share{@arm})", "{{route}} {{policy}}")),
        chart("Stopped canaries", "short", "1: it was worse than the route's policy. See ConductorCanaryStopped.",
              ("max by (pool, route, policy) (conductor_canary_stopped{@arm})", "{{route}} {{policy}}"), max=1, min=0),
        chart("Requests of each policy", "reqps", "The verdict needs at least 200 requests of each.",
              rate("conductor_arm_requests_total", "route, policy, outcome", "@arm"), stack=True),
        chart("Share of failed requests", "percentunit", "Compare the canary with its control. The verdict with its confidence is on /admin/trials.",
              ("sum by (route, policy) (rate(conductor_arm_errors_total{@arm}[@range])) / sum by (route, policy) (rate(conductor_arm_requests_total{@arm}[@range]))", "{{route}} {{policy}}"), zero=True),
        chart("Time to first token, p95", "s", "Compare the canary with its control. The verdict with its confidence is on /admin/trials.",
              ("histogram_quantile(0.95, sum by (route, policy, le) (rate(conductor_arm_time_to_first_token_seconds_bucket{@arm}[@range])))", "{{route}} {{policy}}")),
        chart("Time between tokens, p95", "s", "A canary that fills some workers decodes more slowly.",
              ("histogram_quantile(0.95, sum by (route, policy, le) (rate(conductor_arm_time_between_tokens_seconds_bucket{@arm}[@range])))", "{{route}} {{policy}}")),
        chart("Share of cached prompt tokens", "percentunit", "By the usage of the answers. A better policy has more of the prompt cached.",
              ("sum by (route, policy) (rate(conductor_arm_cached_tokens_total{@arm}[@range])) / sum by (route, policy) (rate(conductor_arm_prompt_tokens_total{@arm}[@range]))", "{{route}} {{policy}}"), min=0, max=1),
    ]),
    ("Shadows", [
        chart("Decisions of shadows", "reqps", "agreed and differed. Faults and open circuits: do not promote it.",
              rate("conductor_shadow_decisions_total", "route, policy, result", "@arm"), stack=True),
        chart("Predicted time to first token", "s", "Mean over the decisions with predictions for both. The shadow should be below the active policy.",
              ("sum by (route, policy, choice) (rate(conductor_shadow_predicted_ttft_seconds_total{@arm}[@range])) / on (route, policy) group_left () sum by (route, policy) (rate(conductor_shadow_predictions_total{@arm}[@range]))", "{{policy}} {{choice}}")),
        chart("Cached tokens, and tokens to compute", "short", "Tokens a second at the chosen worker: more cached and fewer to compute are better.",
              rate("conductor_shadow_matched_tokens_total", "policy, choice", "@arm"),
              rate("conductor_shadow_tokens_ahead_total", "policy, choice", "@arm")),
        quantiles("Time of a shadow's decision", "conductor_shadow_decision_seconds", "policy", "@arm",
                  "It is off the request path. A slow shadow is a slow policy after its promotion."),
        chart("Requests that shadows did not see", "reqps", "The queue of the shadows was full: lower shadow-sample.",
              rate("conductor_shadow_dropped_total", "policy", "@arm"), zero=True),
        chart("Decision log", "reqps", "Dropped lines: see ConductorRecordDropped.",
              ("sum(rate(conductor_record_lines_total{@router}[@range]))", "decisions"),
              ("sum(rate(conductor_shadow_log_lines_total{@router}[@range]))", "shadows"),
              ("sum(rate(conductor_access_log_lines_total{@router}[@range]))", "requests"),
              ("sum by (why) (rate(conductor_record_dropped_total{@router}[@range]))", "dropped {{why}}"),
              ("sum by (why) (rate(conductor_access_log_dropped_total{@router}[@range]))", "requests dropped {{why}}"),
              ("sum by (why) (rate(conductor_shadow_log_dropped_total{@router}[@range]))", "shadows dropped {{why}}"), zero=True),
    ]),
    ("Traces", [
        chart("Traces by their end", "reqps", "Other results than sent: see ConductorTracesDropped.",
              rate("conductor_traces_total", "result", "@router"), zero=True),
        quantiles("Time of a post to the collector", "conductor_traces_export_seconds", "instance", "@router",
                  "Near the share of a second that batches take, the queue grows: lower traces.sample."),
    ]),
]

PD = [
    ("Placement", [
        chart("Attempts by shape", "reqps", "whole: the decode worker computes the prompt itself. decode-again: another decode worker after a failure.",
              rate("conductor_pd_placements_total", "pool, shape", "@pool"), stack=True),
        chart("Share of split requests", "percentunit", "It falls when prompts are cached at decode workers, or no prefill worker is available.",
              ('sum by (pool) (rate(conductor_pd_placements_total{@pool, shape="pair"}[@range])) / sum by (pool) (rate(conductor_pd_placements_total{@pool}[@range]))', "{{pool}}"), min=0, max=1),
        stat("Dialect known", "bool_yes_no", "No: requests are not split. See ConductorDialectUnknown.",
             "min(conductor_pd_dialect_known{@pool})", width=8, bad=1, bad_below=True),
    ]),
    ("Handover", [
        quantiles("Time of the prefill leg", "conductor_pd_prefill_seconds", "pool", "@pool",
                  "Compare it with the time to first token. The rest is the transfer and the wait at the decode worker."),
        quantiles("Time to first token", "conductor_time_to_first_token_seconds", "pool", "@pool",
                  "If it rises and the prefill leg does not, the transfer or the decode workers are slow."),
        chart("Failed handovers", "reqps", "Prefill answers without handshake parameters: see ConductorHandoverFailures.",
              rate("conductor_pd_handover_failures_total", "pool", "@pool"), zero=True),
        chart("Share of failed handovers", "percentunit", "Above 5 % see ConductorHandoverFailures.",
              ('pool:conductor_pd_handover_failures:ratio_rate5m{job=~"$job", pool=~"$pool"}', "{{pool}}"), zero=True),
        chart("Engines known to bootstrap servers", "short", "0 for a prefill worker: its bootstrap server reports no engine id, and it gets no requests.",
              ("min by (worker) (conductor_pd_bootstrap_engines{@worker})", "{{worker}}")),
        chart("Error of predicted transfer times", "percentunit", "Above 50 % the network between the engines changes, and policies choose pairs badly.",
              ("max by (worker) (conductor_worker_cost_transfer_error_ratio{@worker})", "{{worker}}")),
    ]),
    ("Workers", [
        chart("Prompt tokens to compute", "short", "High at prefill workers: add some. High at decode workers: they compute prompts themselves.",
              ("sum by (worker) (conductor_worker_prefill_tokens{@worker})", "{{worker}}")),
        chart("Requests in flight", "short", "Compare the two roles. The one with more requests is the bottleneck.",
              ("sum by (worker) (conductor_worker_requests_in_flight{@worker})", "{{worker}}")),
        chart("Requests that decode", "short", "Prefill workers should have none.",
              ("sum by (worker) (conductor_worker_requests_decoding{@worker})", "{{worker}}")),
    ]),
]

FEED = "worker, rank"
INDEX = [
    ("Index", [
        stat("Blocks", "short", "Blocks, once for each cache that holds them.", "sum(conductor_index_blocks{@router})"),
        stat("Distinct blocks", "short", "Limited by index.max-blocks: see ConductorIndexFull.", "sum(conductor_index_distinct_blocks{@router})"),
        stat("Memory", "bytes", "Divide it by the blocks for the memory of one.", "sum(conductor_index_bytes{@router})"),
        stat("Evictions", "short", "Above zero the index forgets cached blocks: see ConductorIndexFull.",
             "sum(increase(conductor_index_evicted_blocks_total{@router}[@range]))", zero=True, bad=1),
        stat("Feeds that are not current", "short", "Their workers' caches count as unknown: see ConductorFeedStale.",
             "sum(1 - conductor_kv_feed_live{@worker})", zero=True, bad=1),
        stat("Silent feeds", "short", "Connected without events of a working engine. The router subscribes again by itself.",
             "sum(conductor_kv_feed_silent{@worker})", zero=True, bad=1),
        chart("Blocks of each worker", "short", "A worker far below the others restarted, or its feed is incomplete.",
              ("max by (worker) (conductor_index_worker_blocks{@worker})", "{{worker}}")),
        chart("Blocks in events", "short", "Blocks a second. unknown-parent, malformed, other-block-size and ambiguous: the engine's events do not fit the configuration.",
              rate("conductor_index_events_total", "what", "@router")),
        chart("Other blocks", "short", "expected: of requests just sent. leaving: of removed workers. store: of shared stores.",
              ("sum(conductor_index_expected_blocks{@router})", "expected"),
              ("sum(conductor_index_leaving_blocks{@router})", "leaving"),
              ("sum(conductor_index_store_blocks{@router})", "store")),
        chart("Queries of the index", "reqps", "One a decision. None: the policy needs no matches, or the tokens are unknown.",
              rate("conductor_index_queries_total", "pool", "@pool")),
        chart("Evicted blocks", "short", "Blocks a second. Above zero for long: raise index.max-blocks.",
              rate("conductor_index_evicted_blocks_total", "why", "@router"), zero=True),
        chart("Matched tokens of a request", "short", "Median and 95th percentile of the cached tokens at the chosen worker.",
              *((f"histogram_quantile({q}, sum by (pool, le) (rate(conductor_matched_prompt_tokens_bucket{{@pool}}[@range])))", f"p{round(q * 100)} {{{{pool}}}}") for q in (0.5, 0.95))),
    ]),
    ("Feeds", [
        chart("Current and complete feeds", "short", "0 for live: see ConductorFeedStale. 0 for complete: the index lacks blocks from before the connection.",
              ("min by (worker, rank) (conductor_kv_feed_live{@worker})", "{{worker}} {{rank}} live"),
              ("min by (worker, rank) (conductor_kv_feed_complete{@worker})", "{{worker}} {{rank}} complete"), min=0, max=1),
        chart("Lag of events", "s", "From the creation of a batch to its application. Above 5 s see ConductorFeedLag.",
              ("max by (worker, rank) (conductor_kv_feed_lag_seconds{@worker})", "{{worker}} {{rank}}")),
        chart("Time since the last event", "s", "An idle engine sends nothing. Compare it with the worker's requests.",
              ("max by (worker, rank) (conductor_kv_feed_last_event_age_seconds{@worker})", "{{worker}} {{rank}}"),
              ("max by (store) (conductor_store_feed_last_event_age_seconds{@router})", "{{store}}")),
        chart("Batches and events", "reqps", "Should follow the traffic of the worker.",
              rate("conductor_kv_feed_batches_total", FEED, "@worker"), rate("conductor_kv_feed_events_total", "worker, rank, kind", "@worker")),
        chart("Gaps and recoveries", "short", "Gaps with replays heal. Resets forget the worker's cache: configure kv-replay.",
              *((f"sum by (worker, rank) (increase(conductor_kv_feed_{what}_total{{@worker}}[@range]))", f"{{{{worker}}}} {{{{rank}}}} {what}")
                for what in ("gaps", "replays", "restarts", "resets", "resubscribes")), zero=True),
        chart("Rejected events and messages", "reqps", "The engine's version or configuration does not fit. The log has an example.",
              rate("conductor_kv_feed_rejected_total", "worker, rank, reason", "@worker"),
              rate("conductor_kv_feed_rejected_messages_total", FEED, "@worker"),
              rate("conductor_kv_feed_refused_total", "worker, rank, reason", "@worker"), zero=True),
        chart("Messages that wait for the decoder", "bytes", "Near kv-events.total-buffer the router is too slow for the events.",
              ("conductor_kv_feed_held_bytes{@router}", "{{instance}}"), min=0),
        chart("Stores", "short", "0 for live: see ConductorStoreFeedStale. Dropped events make the index forget the store.",
              ("min by (store) (conductor_store_feed_live{@router})", "{{store}} live"),
              ("min by (store) (conductor_store_publishes{@router})", "{{store}} publishes"),
              ("sum by (store) (increase(conductor_store_dropped_events_total{@router}[@range]))", "{{store}} dropped"), min=0),
        chart("Events of stores", "short", "Events a second. Rejected and refused ones: the store's version or configuration does not fit.",
              *(rate(f"conductor_store_feed_{what}_total", "store", "@router")[:1] + (f"{{{{store}}}} {what}",)
                for what in ("batches", "stored", "removed", "resets", "rejected", "rejected_messages", "refused")), zero=True),
        chart("Lag of stores", "s", "Above 5 s the index follows the store too late.",
              ("max by (store) (conductor_store_feed_lag_seconds{@router})", "{{store}}")),
    ]),
    ("Tokens", [
        chart("Prompts by source of their tokens", "reqps", "timeout, failed, queue-full: see ConductorTokenizationFails.",
              rate("conductor_tokenized_total", "pool, outcome", "@pool"), stack=True),
        chart("Queries of workers' tokenizers", "reqps", "unanswered: the workers are slow. Name a tokenizer in [models.NAME].",
              rate("conductor_tokenize_tries_total", "pool, outcome", "@pool")),
        chart("Tokens of the router's tokenizers", "short", "Tokens a second: cache should be most of them, text is computed.",
              rate("conductor_tokenizer_tokens_total", "from", "@router")),
        quantiles("Time to tokenize a prompt", "conductor_tokenizer_seconds", "on", "@router",
                  "request holds up the connection's thread. Long prompts go to their own threads."),
        chart("Memory of the tokenization cache", "bytes", "At its limit the oldest prefixes are forgotten.",
              ("conductor_tokenizer_cache_bytes{@router}", "{{instance}}"), min=0),
        chart("Requests by response id", "reqps", "gone: the worker that made the response is out of service.",
              rate("conductor_response_id_lookups_total", "result", "@router"), zero=True),
    ]),
]

COMMON = ["job", "instance"]
BOARDS = {
    "conductor-overview": ("Conductor / Overview", "Requests, latency, reuse of the caches, and the router itself.", [*COMMON, "pool"], OVERVIEW),
    "conductor-fleet": ("Conductor / Fleet", "Workers: load, health, and the router's knowledge of them.", [*COMMON, "worker"], FLEET),
    "conductor-policies": ("Conductor / Policies", "Decisions, versions, canaries and shadows.", [*COMMON, "pool", "policy"], POLICIES),
    "conductor-pd": ("Conductor / Prefill and decode", "Requests split between prefill and decode workers.", [*COMMON, "pool", "worker"], PD),
    "conductor-index": ("Conductor / Index and feeds", "The prefix index, the KV event feeds, and tokenization.", [*COMMON, "pool", "worker"], INDEX),
}
