//! Engine load reports: vLLM's and SGLang's `/metrics` (Prometheus text format), and SGLang's `/get_load`.
//!
//! Tolerant: an unknown line is skipped and never hides another. Bounded: no rank above 1023, no number that is
//! infinite, NaN or below 0.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Highest data-parallel rank that is read.
const MOST_RANK: u16 = 1023;

/// Load of one data-parallel rank, as far as reported.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineLoad {
    /// Running requests.
    pub running: Option<f64>,
    /// Queued requests.
    pub waiting: Option<f64>,
    /// Used share of the KV cache, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Tokens that the KV cache holds.
    pub kv_tokens: Option<f64>,
}

/// Meaning of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LoadMetric {
    Running,
    Waiting,
    Usage,
    Capacity,
    /// The labels have the value.
    Config,
}

/// Metric names since vLLM 0.10 and SGLang 0.4, and vLLM's older name of the usage.
const NAMES: [(&str, LoadMetric); 9] = [
    ("vllm:num_requests_running", LoadMetric::Running),
    ("vllm:num_requests_waiting", LoadMetric::Waiting),
    ("vllm:kv_cache_usage_perc", LoadMetric::Usage),
    ("vllm:gpu_cache_usage_perc", LoadMetric::Usage),
    ("vllm:cache_config_info", LoadMetric::Config),
    ("sglang:num_running_reqs", LoadMetric::Running),
    ("sglang:num_queue_reqs", LoadMetric::Waiting),
    ("sglang:token_usage", LoadMetric::Usage),
    ("sglang:max_total_num_tokens", LoadMetric::Capacity),
];

/// Returns the loads in a page of metrics, by rank; none for other pages.
#[must_use]
pub fn engine_loads(page: &str) -> BTreeMap<u16, EngineLoad> {
    let series: Vec<LoadSeries<'_>> = page.lines().filter_map(LoadSeries::read).collect();
    let mut firsts = BTreeMap::new();
    for one in &series {
        let first = firsts.entry(one.subject()).or_insert(one.copy);
        *first = (*first).min(one.copy);
    }
    let mut ranks = BTreeMap::<u16, EngineLoad>::new();
    for one in &series {
        if firsts.get(&one.subject()) == Some(&one.copy) {
            note(
                ranks.entry(one.rank).or_default(),
                one.metric,
                one.labels,
                one.value,
            );
        }
    }
    ranks.retain(|_, load| *load != EngineLoad::default());
    ranks
}

fn note(load: &mut EngineLoad, metric: LoadMetric, labels: &str, value: f64) {
    // Several series of one rank: one per model.
    let sum = |before: &mut Option<f64>| *before = Some(before.unwrap_or(0.0) + value);
    match metric {
        LoadMetric::Running => sum(&mut load.running),
        LoadMetric::Waiting => sum(&mut load.waiting),
        LoadMetric::Usage => load.kv_usage = Some(load.kv_usage.unwrap_or(0.0).max(value.min(1.0))),
        LoadMetric::Capacity => load.kv_tokens = Some(load.kv_tokens.unwrap_or(0.0).max(value)),
        LoadMetric::Config => {
            let number = |name| label(labels, name)?.parse::<u32>().ok();
            if let (Some(size), Some(blocks)) = (number("block_size"), number("num_gpu_blocks")) {
                load.kv_tokens = Some(f64::from(size) * f64::from(blocks));
            }
        }
    }
}

/// Series of a rank's load.
struct LoadSeries<'l> {
    metric: LoadMetric,
    labels: &'l str,
    value: f64,
    /// Data-parallel rank.
    rank: u16,
    /// Pipeline and tensor rank. The reports of one data-parallel rank are copies; the lowest counts. With
    /// data-parallel attention SGLang numbers tensor ranks over all data-parallel ranks, so the lowest need not be 0.
    copy: (u32, u32),
}

impl<'l> LoadSeries<'l> {
    fn read(line: &'l str) -> Option<Self> {
        let (metric, labels, value) = sample(line)?;
        // A series with a priority is included in the series without one.
        let is_part = label(labels, "priority").is_some_and(|priority| !priority.is_empty());
        let number = |name| label(labels, name).and_then(|rank| rank.parse::<u32>().ok());
        let part = |name| label(labels, name).map_or(Some(0), |rank| rank.parse::<u32>().ok());
        let copy = (part("pp_rank")?, part("tp_rank")?);
        let data_rank = number("dp_rank");
        let is_copy = data_rank.is_none() && copy != (0, 0);
        let rank = number("engine").or(data_rank).unwrap_or(0);
        let rank = u16::try_from(rank).ok().filter(|&rank| rank <= MOST_RANK)?;
        (!is_part && !is_copy).then_some(Self {
            metric,
            labels,
            value,
            rank,
            copy,
        })
    }

    /// Returns the key that a series shares with its copies: metric, rank and model.
    fn subject(&self) -> (LoadMetric, u16, Option<&'l str>) {
        (self.metric, self.rank, label(self.labels, "model_name"))
    }
}

/// Returns a line's metric, labels and value.
fn sample(line: &str) -> Option<(LoadMetric, &str, f64)> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let metric = NAMES.iter().find(|(known, _)| *known == name)?.1;
    let (labels, value) = match rest.strip_prefix('{') {
        Some(labelled) => labelled.rsplit_once('}')?,
        None => ("", rest),
    };
    // A timestamp may follow.
    let value = value.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
    (value.is_finite() && value >= 0.0).then_some((metric, labels, value))
}

/// Returns the value of a label. Matches whole names only, so that the end of another name is not taken for it.
pub(crate) fn label<'l>(labels: &'l str, name: &str) -> Option<&'l str> {
    labels.match_indices(name).find_map(|(at, _)| {
        let begins = at == 0 || labels[..at].ends_with([',', ' ']);
        let value = labels[at + name.len()..].strip_prefix("=\"")?;
        begins.then(|| value.split('"').next())?
    })
}

#[derive(Deserialize)]
struct SglangRank {
    #[serde(default)]
    dp_rank: Option<u16>,
    num_running_reqs: Option<f64>,
    /// Running and queued requests.
    num_reqs: Option<f64>,
    num_waiting_reqs: Option<f64>,
    token_usage: Option<f64>,
    max_total_num_tokens: Option<f64>,
}

/// A list of ranks; newer servers have it in a field.
#[derive(Deserialize)]
#[serde(untagged)]
enum SglangPage {
    Bare(Vec<SglangRank>),
    Wrapped { loads: Vec<SglangRank> },
}

/// Returns the loads in SGLang's `/get_load`, by rank; none for other pages.
#[must_use]
pub fn sglang_loads(page: &[u8]) -> BTreeMap<u16, EngineLoad> {
    let ranks = match serde_json::from_slice(page) {
        Ok(SglangPage::Bare(ranks) | SglangPage::Wrapped { loads: ranks }) => ranks,
        Err(_) => return BTreeMap::new(),
    };
    let sane = |number: Option<f64>| number.filter(|number| number.is_finite() && *number >= 0.0);
    let load = |rank: SglangRank| {
        let waiting = sane(rank.num_waiting_reqs);
        let rest = |all: f64| sane(Some(all - waiting.unwrap_or(0.0)));
        let load = EngineLoad {
            running: sane(rank.num_running_reqs).or_else(|| rest(rank.num_reqs?)),
            waiting,
            kv_usage: sane(rank.token_usage).map(|usage| usage.min(1.0)),
            kv_tokens: sane(rank.max_total_num_tokens),
        };
        let at = rank.dp_rank.unwrap_or(0);
        (at <= MOST_RANK && load != EngineLoad::default()).then_some((at, load))
    };
    ranks.into_iter().filter_map(load).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const VLLM: &str = "# HELP vllm:num_requests_running Requests.\n\
        # TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 2.0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 5.0\n\
        vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 9.0\n\
        vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.08695652173913049\n\
        vllm:cache_config_info{block_size=\"32\",effective_attention_block_size=\"64\",engine=\"0\",num_gpu_blocks=\"24\"} 1.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"tiny\"} 1.0\n";

    const SGLANG: &str = "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\",pp_rank=\"0\",tp_rank=\"0\"} 3.0\n\
        sglang:num_running_reqs{model_name=\"m\",pp_rank=\"0\",tp_rank=\"1\"} 3.0\n\
        sglang:num_queue_reqs{model_name=\"m\",priority=\"\",tp_rank=\"0\"} 4.0\n\
        sglang:num_queue_reqs{model_name=\"m\",priority=\"7\",tp_rank=\"0\"} 1.0\n\
        sglang:token_usage{model_name=\"m\"} 0.55\n\
        sglang:max_total_num_tokens 1000.0 1395066363000\n";

    fn load(running: f64, waiting: f64, usage: f64, tokens: f64) -> EngineLoad {
        EngineLoad {
            running: Some(running),
            waiting: Some(waiting),
            kv_usage: Some(usage),
            kv_tokens: Some(tokens),
        }
    }

    #[test]
    fn vllm_reports_rank_by_rank() {
        let ranks = engine_loads(VLLM);
        assert_eq!(ranks[&0], load(2.0, 5.0, 0.086_956_521_739_130_49, 768.0));
        assert_eq!(ranks[&1].running, Some(1.0));
        assert_eq!(ranks[&1].waiting, None);
    }

    #[test]
    fn sglang_reports_once_however_many_tensor_ranks_report_it() {
        assert_eq!(engine_loads(SGLANG)[&0], load(3.0, 4.0, 0.55, 1000.0));
    }

    #[test]
    fn sglang_reports_each_rank_of_data_parallel_attention_once() {
        let series = |tensor: u16, data: u16, running: u16| {
            format!(
                "sglang:num_running_reqs{{model_name=\"m\",tp_rank=\"{tensor}\",pp_rank=\"0\",dp_rank=\"{data}\"}} {running}\n\
                 sglang:token_usage{{model_name=\"m\",tp_rank=\"{tensor}\",pp_rank=\"0\",dp_rank=\"{data}\"}} 0.{running}\n"
            )
        };
        let first_ranks = series(0, 0, 1) + &series(4, 1, 30);
        // Each scheduler reports, in any order.
        let all_ranks = series(5, 1, 29) + &first_ranks + &series(1, 0, 2);
        for page in [first_ranks, all_ranks] {
            let ranks = engine_loads(&page);
            assert_eq!((ranks[&0].running, ranks[&1].running), (Some(1.0), Some(30.0)));
            assert_eq!((ranks[&0].kv_usage, ranks[&1].kv_usage), (Some(0.1), Some(0.3)));
        }
    }

    #[test]
    fn the_load_page_of_sglang_is_read_in_both_forms() {
        let old = br#"[{"dp_rank":1,"num_reqs":7,"num_waiting_reqs":3,"num_tokens":99}]"#;
        let ranks = sglang_loads(old);
        assert_eq!((ranks[&1].running, ranks[&1].waiting), (Some(4.0), Some(3.0)));
        let new = br#"{"timestamp":"t","loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":0,
            "token_usage":1.5,"max_total_num_tokens":64}]}"#;
        assert_eq!(sglang_loads(new)[&0], load(2.0, 0.0, 1.0, 64.0));
        for other in [
            "",
            "{}",
            "[1]",
            r#"{"loads":3}"#,
            r#"[{"dp_rank":5000,"num_reqs":1}]"#,
        ] {
            assert!(sglang_loads(other.as_bytes()).is_empty(), "{other}");
        }
    }

    /// Corrupted pages give valid numbers, and no panic.
    #[test]
    fn pages_that_are_cut_or_garbled_report_sane_numbers_or_nothing() {
        let mut seed = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as usize
        };
        let alphabet = [
            '"', '{', '}', ',', ' ', '\n', '=', '0', '-', 'e', 'N', 'é', '\\', '\u{0}',
        ];
        for page in [VLLM, SGLANG] {
            for _ in 0..4_000 {
                let mut chars: Vec<char> = page.chars().collect();
                for _ in 0..random() % 8 {
                    let at = random() % chars.len();
                    chars[at] = alphabet[random() % alphabet.len()];
                }
                chars.truncate(random() % (chars.len() + 1));
                let garbled: String = chars.into_iter().collect();
                for (rank, load) in engine_loads(&garbled) {
                    assert!(rank <= MOST_RANK);
                    let metric = [load.running, load.waiting, load.kv_usage, load.kv_tokens];
                    let is_sane = |number: f64| number.is_finite() && number >= 0.0;
                    assert!(metric.into_iter().flatten().all(is_sane), "{garbled}");
                    assert!(load.kv_usage.is_none_or(|usage| usage <= 1.0), "{garbled}");
                }
                drop(sglang_loads(garbled.as_bytes()));
            }
        }
    }

    #[test]
    fn the_captured_page_of_a_busy_vllm_is_read() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http/metrics_busy.txt");
        let Ok(page) = fs::read_to_string(path) else {
            println!("skipped: the capture is not there");
            return;
        };
        let load = engine_loads(&page)[&0];
        assert_eq!((load.running, load.waiting), (Some(2.0), Some(0.0)));
        assert!(load.kv_usage.unwrap() > 0.08 && load.kv_tokens.unwrap() > 0.0);
    }
}
