//! Server and simulator of the differential test, both in the same drawn state.

use super::*;

/// The server and the simulator in the same state.
pub(super) struct TwoRouters {
    pub(super) proxy: Arc<Proxy>,
    pub(super) probe: RouterProbe,
    /// Bookings of both.
    pub(super) leases: Vec<LoadLease>,
}

impl TwoRouters {
    pub(super) fn in_state(state: &mut DrawnState, policies: [&Arc<HashPolicy>; 4]) -> Self {
        let [first, second, simulated_first, simulated_second] =
            policies.map(|policy| Arc::clone(policy) as Arc<dyn Policy>);
        let simulated = if state.by_phase {
            Policies::ByPhase {
                prefill: simulated_first,
                decode: simulated_second,
            }
        } else {
            Policies::One(simulated_first)
        };
        let mut probe = RouterProbe::new(&state.cluster, BLOCK, simulated, &state.spec);
        let mut specs: Vec<WorkerSpec> = probe
            .workers()
            .iter()
            .map(|worker| worker.spec().clone())
            .collect();
        for (at, spec) in specs.iter_mut().enumerate() {
            // One that has left the cluster is, for the server, one that does not serve the model.
            if state.below(8) == 0 {
                probe.remove(at);
                spec.models = vec!["another".into()];
            }
        }
        let mut both = Self {
            proxy: server(state, specs, first, second),
            probe,
            leases: Vec::new(),
        };
        for worker in 0..state.cluster.workers.len() {
            both.draw_worker(state, worker);
        }
        both
    }

    fn draw_worker(&mut self, state: &mut DrawnState, worker: usize) {
        let snapshot = self.proxy.snapshots.load();
        let member = &snapshot.pools[0].workers.members[worker];
        let link = &member.link;
        let dispatch = link.begin();
        link.answered(dispatch);
        if state.below(3) == 0 {
            link.health.failed(link.begin(), link.now_ms(), || true);
            self.probe.eject(worker, NOW_US);
        }
        let loads = [member.worker.load(), self.probe.workers()[worker].load()].map(Arc::clone);
        self.draw_load(state, &loads);
        if state.below(2) == 0 {
            let report = EngineReport {
                running: state.below(9) as f64,
                waiting: state.below(9) as f64,
                kv_usage: state.below(100) as f64 / 100.0,
                kv_tokens: 1_000.0,
            };
            loads.iter().for_each(|load| load.record_engine_report(report, 0));
        }
        for tier in [Tier::Disk, Tier::Host, Tier::Device] {
            let blocks = state.below(1 + state.request.blocks.len());
            let blocks = state.request.blocks[..blocks].to_vec();
            if !blocks.is_empty() && matches!(state.spec.knowledge, Knowledge::Events { .. }) {
                self.probe.store(worker, &blocks, tier);
                store(&self.proxy, member.worker.id(), &blocks, tier);
            }
        }
        if state.below(2) == 0 && matches!(state.spec.knowledge, Knowledge::Assumed { .. }) {
            let blocks = state.request.blocks[..state.request.blocks.len().div_ceil(2)].to_vec();
            self.probe.expect(
                worker,
                &Request {
                    prompt_tokens: BLOCK * blocks.len() as u32,
                    blocks: blocks.clone().into(),
                    ..state.request.clone()
                },
            );
            let sent = Sent {
                worker: member.worker.id(),
                block_size: BLOCK,
                capacity: CAPACITY as u64,
            };
            let prompt = HashedPrompt::new(tokens_of(&blocks).into(), None, None);
            self.proxy
                .dispatcher
                .sources
                .index
                .expect(&sent, &mut prompt.lock());
        }
    }

    /// Books the same requests on both loads.
    fn draw_load(&mut self, state: &mut DrawnState, loads: &[Arc<WorkerLoad>; 2]) {
        for _ in 0..state.below(30) {
            let (prompt, cached) = (16 + state.below(4_000) as u32, state.below(16) as u32);
            let first_token = Duration::from_micros(1_000 + state.below(900_000) as u64);
            let decoded = Duration::from_micros(50_000 + state.below(900_000) as u64);
            let (kind, end) = (state.below(3), state.below(4));
            for load in loads {
                let mut lease = match kind {
                    0 => load.book_fetched(prompt),
                    _ => load.book(prompt, prompt - cached),
                };
                if end > 0 {
                    lease.first_token(first_token);
                }
                if end > 1 {
                    lease.decoded(40, decoded);
                } else {
                    self.leases.push(lease);
                }
            }
        }
    }
}

/// Publishes on the server that a worker's cache has these blocks.
fn store(proxy: &Proxy, worker: WorkerId, blocks: &[u64], tier: Tier) {
    let holder = Holder {
        worker,
        rank: DpRank(0),
    };
    let stored = StoredBlocks {
        hashes: blocks.iter().map(|block| EngineBlockHash(*block)).collect(),
        parent: None,
        tokens: tokens_of(blocks),
        block_size: BLOCK,
        tier,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    };
    proxy
        .dispatcher
        .sources
        .index
        .apply(holder, &BlockEvent::Stored(stored));
}

/// Returns the tokens that stand for blocks of a trace.
fn tokens_of(blocks: &[u64]) -> Vec<u32> {
    let of_block = |block: &u64| {
        let mut tokens = vec![0; BLOCK as usize];
        tokens[0] = *block as u32;
        tokens
    };
    blocks.iter().flat_map(of_block).collect()
}

fn server(
    state: &DrawnState,
    workers: Vec<WorkerSpec>,
    first: Arc<dyn Policy>,
    second: Arc<dyn Policy>,
) -> Arc<Proxy> {
    let mut registry = Registry::default();
    let metrics = ProxyMetrics::new(&mut registry);
    let (fleet, _) = Fleet::default().next(workers);
    let plan = SnapshotPlan::new(None, snapshot_spec(state, &fleet, first, second)).unwrap();
    let live = Arc::<LiveFeeds>::default();
    if matches!(state.spec.knowledge, Knowledge::Events { .. }) {
        fleet
            .workers()
            .iter()
            .for_each(|worker| live.set(worker.id(), true));
    }
    Proxy::new(ProxyParts {
        snapshots: Arc::new(SnapshotCell::new(plan, &metrics)),
        index: Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 })),
        live,
        metrics,
        registry: Arc::new(registry),
        readiness: Readiness::default(),
    })
}

fn snapshot_spec(
    state: &DrawnState,
    fleet: &Fleet,
    first: Arc<dyn Policy>,
    second: Arc<dyn Policy>,
) -> SnapshotSpec {
    let ample = Duration::from_secs(60);
    let first = PolicyVersions::only(first);
    let assumed = AssumedCache {
        tokens: CAPACITY as u64 * u64::from(BLOCK),
        block_size: BLOCK,
        lifetime: ample,
    };
    let is_assumed = matches!(state.spec.knowledge, Knowledge::Assumed { .. });
    let pool = PoolSpec {
        pool: Pool {
            name: "main".into(),
            workers: fleet.workers().into(),
        },
        tokens: TokenSource::Off,
        expectation: Expectation {
            until_confirmed: Duration::ZERO,
            assumed: is_assumed.then_some(assumed),
        },
        queue_limit: state.spec.queue.limit,
        queue_timeout: Duration::from_micros(state.spec.queue.timeout_us),
        admission: None,
        keep_alive: None,
        adapters: vec![],
        model_list: None,
        authorization: Authorization::Pass,
        connections: ConnectionsSpec::default(),
        accept_handover: false,
        isolate_prefixes: false,
        pd: Some(PdSpec {
            dialect: Some(Dialect::Nixl),
            alone: state.spec.decode_alone,
            connect_timeout: ample,
            prefill_timeout: ample,
            first_token_timeout: ample,
            idle_timeout: ample,
        }),
        health: HealthSpec {
            base_ejection_time: ample,
            max_ejection_time: ample,
            slow_start: Duration::ZERO,
            ..HealthSpec::default()
        },
        scrape: None,
        retries: RetrySpec::default(),
        timeouts: PoolTimeouts::default(),
    };
    SnapshotSpec {
        generation: Generation(1),
        pools: vec![pool],
        routes: vec![RouteSpec {
            prefill_policy: state.by_phase.then(|| Arc::clone(&first)),
            decode_policy: state.by_phase.then(|| PolicyVersions::only(second)),
            policy: first,
            models: vec![],
            path: None,
            headers: vec![],
            pool: "main".to_owned(),
            trials: TrialSpec::default(),
            objectives: Objectives::default(),
        }],
        models: ModelsSpec::default(),
        limits: RequestLimits {
            body_bytes: 1 << 20,
            connect_timeout: ample,
            first_byte_timeout: ample,
            idle_timeout: ample,
            first_token_timeout: None,
            request_timeout: None,
            attempts: 3,
        },
        traces: None,
        record: RecordSpec::nothing(Recorder::of_run(
            &mut Registry::default(),
            RunNumber(state.spec.seed << 32),
        )),
        decision_headers: true,
        edge: EdgeSpec::default(),
        clients: vec![],
        metrics_on_listen: true,
        policy_headers: vec![],
    }
}

/// Returns the request of the trace as the server has it.
pub(super) async fn server_request(
    proxy: &Proxy,
    state: &DrawnState,
    number: usize,
) -> Arc<InferenceRequest> {
    let snapshot = proxy.snapshots.load();
    let endpoint = Endpoint::Completions;
    let body = Bytes::from_static(br#"{"model":"m","prompt":"p","stream":true}"#);
    let peek = inference_api::peek(endpoint, &body).unwrap();
    let pool = snapshot.pool_of(0);
    let split = body_facts::split(pool, endpoint, &peek, &body, true)
        .await
        .unwrap();
    assert!(split.is_some());
    Arc::new(InferenceRequest {
        pool: RequestPool::new(
            Arc::clone(pool),
            RequestModel::new(pool.workers.catalog.find("m")),
        ),
        policies: RequestPolicies::new(Arc::clone(&snapshot.routes[0].policies), 0),
        settings: Arc::clone(&snapshot.settings),
        assignment: None,
        head: Box::new(RequestHead {
            endpoint,
            seq: number as u64 + 1,
            run: proxy.run,
            id: HeaderValue::from_static("r"),
            from: None,
            arrived: Instant::now(),
            method: Method::POST,
            target: "/v1/completions".parse().unwrap(),
            headers: HeaderMap::new(),
            watch: RequestWatch::start(Instant::now(), AccessHandle::default(), SpanHandle::default()),
        }),
        body: vec![b'x'; 4 * state.request.prompt_tokens as usize].into(),
        params: RequestParams {
            tokens_took: None,
            estimated_tokens: 0,
            model: "m".into(),
            stream: true,
            max_tokens: None,
            priority: None,
            session: None,
            prompt: Some(HashedPrompt::new(
                tokens_of(&state.request.blocks).into(),
                None,
                None,
            )),
        },
        split,
        sender: RequestSender::default(),
        progress: DispatchProgress::default(),
    })
}
