//! Sources of workers of a configuration, as the specs of their queries.

use std::io;
use std::path::{Path, PathBuf};

use conductor_config::{Config, DiscoveryConfig, DiscoveryPlace, KubernetesConfig, KubernetesObjects};
use external_resources::Keys;
use local_files::ConfigSource;
use local_files::regular_file::read_bounded;
use thiserror::Error;
use worker_discovery::WorkerDefaults;
use worker_sources::{Bearer, DnsServer, KubeObjects, KubeSource, ServerSource, SourceKind, SourceSpec};

/// Folder with the credentials of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Variables with the address of the API server in a pod.
const API_SERVER: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
/// Most bytes of the file with a pod's namespace.
const LONGEST_NAMESPACE: u64 = 1_024;

/// Error of a source that needs a Kubernetes cluster around the router.
#[derive(Debug, Error)]
pub enum NoCluster {
    /// The API server is unknown.
    #[error(
        "failed to find the API server of `discovery.{source_name}`: {} and {} are not set, so the router runs in no pod; \
         set `kubernetes.api-server`", API_SERVER[0], API_SERVER[1]
    )]
    ApiServer {
        /// Name of the source.
        source_name: String,
    },
    /// The namespace is unknown.
    #[error(
        "failed to read the namespace of the router's pod for `discovery.{source_name}` from `{}`; set \
         `kubernetes.namespace`", path.display()
    )]
    Namespace {
        /// Name of the source.
        source_name: String,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// Returns the sources of a configuration, or [`NoCluster`] for those that need a cluster around the router. `keys`
/// were read for it.
pub(crate) fn source_specs(
    config: &Config,
    keys: &Keys,
    files: &ConfigSource,
) -> Vec<Result<SourceSpec, NoCluster>> {
    let specs = SourceSpecs {
        keys,
        files,
        env: &|name| std::env::var(name).ok(),
    };
    config.discovery.iter().map(|source| specs.spec(source)).collect()
}

/// Inputs of the specs.
struct SourceSpecs<'a> {
    keys: &'a Keys,
    files: &'a ConfigSource,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl SourceSpecs<'_> {
    fn spec(&self, source: &DiscoveryConfig) -> Result<SourceSpec, NoCluster> {
        let workers = &source.workers;
        Ok(SourceSpec {
            name: source.name.clone(),
            pool: source.pool.clone(),
            kind: self.kind(source)?,
            every: source.every,
            timeout: source.timeout,
            confirm: source.confirm,
            max_bytes: usize::try_from(source.max_bytes).unwrap_or(usize::MAX),
            defaults: WorkerDefaults {
                scheme: workers.scheme,
                role: workers.role,
                role_label: workers.role_label.clone(),
                models: workers.models.clone(),
                weight: workers.weight,
                ranks: workers.ranks,
                max_workers: source.max_workers as usize,
            },
        })
    }

    fn kind(&self, source: &DiscoveryConfig) -> Result<SourceKind, NoCluster> {
        let dns = |server: Option<std::net::SocketAddr>| server.map_or(DnsServer::System, DnsServer::At);
        Ok(match &source.place {
            DiscoveryPlace::Dns { name, port, server } => SourceKind::Dns {
                name: name.clone(),
                port: *port,
                server: dns(*server),
            },
            DiscoveryPlace::Srv { name, server } => SourceKind::Srv {
                name: name.clone(),
                server: dns(*server),
            },
            DiscoveryPlace::HttpSd { url, path, ca, .. } => SourceKind::HttpSd {
                server: ServerSource {
                    url: url.clone(),
                    bearer: self.bearer(source, Bearer::None),
                    ca: ca.as_ref().map(|ca| self.files.resolve(&ca.path)),
                },
                path: path.clone(),
            },
            DiscoveryPlace::FileSd(path) => SourceKind::FileSd(self.files.resolve(path)),
            DiscoveryPlace::Kubernetes(kubernetes) => {
                SourceKind::Kubernetes(self.objects(source, kubernetes)?)
            }
        })
    }

    fn bearer(&self, source: &DiscoveryConfig, default: Bearer) -> Bearer {
        self.keys.source(source).map_or(default, Bearer::Known)
    }

    fn objects(&self, source: &DiscoveryConfig, config: &KubernetesConfig) -> Result<KubeSource, NoCluster> {
        let account = |name: &str| Path::new(ACCOUNT).join(name);
        let named_ca = config.ca.as_ref().map(|ca| self.files.resolve(&ca.path));
        let server = match &config.api_server {
            Some(url) => ServerSource {
                url: url.clone(),
                bearer: self.bearer(source, Bearer::None),
                ca: named_ca,
            },
            None => ServerSource {
                url: self.api_server(source)?,
                bearer: self.bearer(source, Bearer::File(account("token"))),
                ca: Some(named_ca.unwrap_or_else(|| account("ca.crt"))),
            },
        };
        let namespace = match &config.namespace {
            Some(namespace) => namespace.clone(),
            None => own_namespace(source, account("namespace"))?,
        };
        Ok(KubeSource {
            server,
            namespace,
            objects: match &config.objects {
                KubernetesObjects::Service(name) => KubeObjects::Service(name.clone()),
                KubernetesObjects::Selector(selector) => KubeObjects::Pods(selector.clone()),
            },
            port: config.port.clone(),
        })
    }

    /// Returns the URL of the API server in a pod.
    fn api_server(&self, source: &DiscoveryConfig) -> Result<String, NoCluster> {
        let [host, port] = API_SERVER.map(|name| (self.env)(name).filter(|value| !value.is_empty()));
        let (Some(host), Some(port)) = (host, port) else {
            let source_name = source.name.clone();
            return Err(NoCluster::ApiServer { source_name });
        };
        Ok(match host.contains(':') {
            true => format!("https://[{host}]:{port}"),
            false => format!("https://{host}:{port}"),
        })
    }
}

fn own_namespace(config: &DiscoveryConfig, path: PathBuf) -> Result<String, NoCluster> {
    match read_bounded(&path, LONGEST_NAMESPACE) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(source) => Err(NoCluster::Namespace {
            source_name: config.name.clone(),
            path,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::read;

    fn kubernetes(keys: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<KubeSource, NoCluster> {
        let text = format!(
            "[pools.a]\n[discovery.s]\npool = \"a\"\nkubernetes = {{ service = \"vllm\", {keys} }}\n[[routes]]\npool = \"a\"\n"
        );
        let files = ConfigSource::Text(text.clone());
        let config = read(&files, &text).expect("valid").config;
        let keys = Keys::default();
        let specs = SourceSpecs {
            keys: &keys,
            files: &files,
            env,
        };
        match specs.spec(&config.discovery[0])?.kind {
            SourceKind::Kubernetes(source) => Ok(source),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_has_the_api_server_and_the_credentials_of_its_cluster() {
        let env = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            _ => None,
        };
        let source = kubernetes("namespace = \"prod\"", &env).unwrap();
        assert_eq!(source.server.url, "https://[fd00::1]:443");
        assert_eq!(
            source.server.bearer,
            Bearer::File(Path::new(ACCOUNT).join("token"))
        );
        assert_eq!(source.server.ca, Some(Path::new(ACCOUNT).join("ca.crt")));
        assert_eq!(source.namespace, "prod");
    }

    #[test]
    fn outside_a_cluster_the_api_server_must_be_named() {
        let refused = kubernetes("namespace = \"prod\"", &|_| None).unwrap_err();
        assert!(refused.to_string().contains("kubernetes.api-server"), "{refused}");
        let named = "api-server = \"http://127.0.0.1:8001\", namespace = \"prod\"";
        let source = kubernetes(named, &|_| None).unwrap();
        assert_eq!((source.server.bearer, source.server.ca), (Bearer::None, None));
    }
}
