//! The OpenAPI documents of the listeners and their page, held to the answers of a running router.

mod calls;
mod page;
mod recorder;
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use harness::Fleet;
use serde_json::{Map, Value, json};

use self::calls::KEY;
use self::page::{Section, layout, page};
use self::recorder::{Recorder, shortened};
use self::schema::{differences, merge};
use crate::fast_fleet;

const DOCS: &str = "../docs/api";
const METHODS: [&str; 4] = ["get", "put", "post", "delete"];
/// Name, title and introduction of each listener's section.
const LISTENERS: [(&str, &str, &str); 3] = [
    (
        "admin",
        "Admin listener",
        "The pages of `admin-listen`. [Admin pages](../operation/admin.md) has links to what each means.",
    ),
    (
        "clients",
        "Pages of the clients' listener",
        "The router's own pages on `listen`. `GET /openapi.json` describes the inference endpoints too.",
    ),
    (
        "indexer",
        "Indexer",
        "The API of `[indexer]`, in JSON. It takes and gives msgpack too.",
    ),
];

/// Summaries of pages whose code has none. A path after a listener's title is that listener's only.
const SUMMARIES: [(&str, &str); 12] = [
    ("Indexer /", "the state of the service"),
    (
        "/",
        "the dashboard for browsers, the index of the pages otherwise",
    ),
    ("/admin", "the index of the pages"),
    (
        "/cache",
        "the best engine for a prompt, in the shape of the first generation",
    ),
    (
        "/global_view",
        "contexts with their instances, ranks and hash profile",
    ),
    ("/query", "the cached prefix of a prompt in each engine"),
    (
        "/query_by_hash",
        "the cached prefix in each engine, by hashes of blocks",
    ),
    ("/register", "follows the KV events of an engine or a store"),
    (
        "/services",
        "every registration and followed worker with its state",
    ),
    ("/unregister", "ends a registration"),
    ("/instances/add", "adds a worker, or changes its role"),
    ("/instances/remove", "removes a worker"),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCS).join(name)
}

/// Calls every endpoint. Returns the operations by listener.
async fn recorded(fleet: &Fleet, folder: &Path) -> (BTreeMap<&'static str, Recorder>, Vec<(String, String)>) {
    let router = calls::router(fleet, folder).await;
    let key = Some(("x-api-key", KEY));
    let mut admin = Recorder::new(router.admin.clone(), key);
    let mut clients = Recorder::new(router.client.clone(), key);
    let indexer = router.indexer.clone().unwrap();
    let mut indexer = Recorder::new(indexer, None);
    calls::admin(&mut admin, &router, fleet).await;
    calls::clients(&mut clients).await;
    // An engine that is no worker.
    let other = fast_fleet().await;
    calls::indexer(&mut indexer, &other).await;
    calls::simulations(&mut admin, fleet, folder).await;
    // Addresses and folders of the test are no part of an example.
    let mut names = vec![
        (
            router.path("").display().to_string(),
            "/etc/conductor/".to_owned(),
        ),
        (format!("{}/", folder.display()), "/etc/conductor/".to_owned()),
    ];
    for (number, engine) in fleet.engines.iter().chain(&other.engines).enumerate() {
        let url = engine.url();
        for (address, port) in [
            (&*url, 8000),
            (engine.kv_events(), 5557),
            (engine.kv_replay(), 5558),
        ] {
            let address = address.rsplit('/').next().unwrap().to_owned();
            names.push((address, format!("10.0.0.{}:{port}", number + 1)));
        }
    }
    let all = [("admin", admin), ("clients", clients), ("indexer", indexer)];
    (all.into_iter().collect(), names)
}

/// Returns the summaries of the pages, by path: those of the admin index and of the clients' document.
fn summaries(recorders: &BTreeMap<&'static str, Recorder>) -> BTreeMap<(String, String), String> {
    let example = |listener: &str, path: &str| {
        recorders[listener].paths[path]["get"]["responses"]["200"]["content"]["application/json"]["example"]
            .clone()
    };
    let index = example("admin", "/admin");
    let rows = index["pages"].as_array().unwrap().iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (
            (text("method").to_lowercase(), text("path").replace("{*", "{")),
            text("about"),
        )
    });
    let served = example("clients", "/openapi.json");
    let paths = served["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| {
        methods.as_object().unwrap().iter().map(|(method, operation)| {
            let summary = operation["summary"].as_str().unwrap().to_owned();
            ((method.clone(), path.clone()), summary)
        })
    });
    operations.chain(rows).collect()
}

fn document(title: &str, recorder: &Recorder, known: &BTreeMap<(String, String), String>) -> Value {
    let mut paths = Map::new();
    for (path, methods) in &recorder.paths {
        let mut methods = methods.clone();
        for (method, operation) in &mut methods {
            let of_listener = format!("{title} {path}");
            let own = SUMMARIES
                .iter()
                .find(|(own, _)| *own == of_listener || own == path)
                .map(|(_, summary)| (*summary).to_owned());
            let summary = known.get(&(method.clone(), path.clone())).cloned().or(own);
            operation["summary"] = summary
                .unwrap_or_else(|| unreachable!("{path} has no summary"))
                .into();
        }
        paths.insert(path.clone(), Value::Object(methods));
    }
    let text = || json!({ "type": "string" });
    let fields =
        json!({ "message": text(), "type": text(), "param": { "type": ["string", "null"] }, "code": text() });
    let error = match title {
        "Indexer" => json!({ "type": "object", "properties": { "error": text(), "reason": text() } }),
        _ => {
            json!({ "type": "object", "properties": { "error": { "type": "object", "properties": fields } } })
        }
    };
    let content = json!({ "application/json": { "schema": error } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": format!("Conductor: {title}"), "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "responses": { "Error": { "description": "An error", "content": content } } },
    })
}

/// Returns the content of each answer of an operation.
fn contents(operation: &Value) -> impl Iterator<Item = &Value> {
    let answers = operation["responses"].as_object().into_iter().flatten();
    answers.flat_map(|(_, answer)| {
        answer["content"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, content)| content)
    })
}

/// Returns the operations of a document by method and path.
fn operations(document: &Value) -> BTreeMap<(&str, &str), &Value> {
    let paths = document["paths"].as_object().unwrap().iter();
    let all = paths.flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(move |(method, operation)| ((&**method, &**path), operation))
    });
    all.collect()
}

/// Shortens the examples of a fresh document, whose schemas also take what the former one had.
fn prepared(fresh: &Value, former: Option<&Value>, names: &[(String, String)]) -> Value {
    let mut document = fresh.clone();
    let former = former.map(operations).unwrap_or_default();
    for (path, methods) in document["paths"].as_object_mut().unwrap() {
        for (method, operation) in methods.as_object_mut().unwrap() {
            let known = former.get(&(&**method, &**path));
            let known = known.and_then(|operation| {
                contents(operation)
                    .next()
                    .map(|content| content["schema"].clone())
            });
            let answers = operation["responses"].as_object_mut().unwrap();
            for content in answers
                .values_mut()
                .filter_map(|answer| answer["content"].as_object_mut())
            {
                for content in content.values_mut() {
                    content["example"] = shortened(&content["example"]);
                    if let Some(known) = &known {
                        content["schema"] = merge(known, &content["schema"]);
                    }
                }
            }
            if let Some(example) = operation["requestBody"].pointer_mut("/content/application~1json/example")
            {
                *example = shortened(example);
            }
        }
    }
    let text = names.iter().fold(document.to_string(), |text, (own, public)| {
        text.replace(own, public)
    });
    serde_json::from_str(&text).unwrap()
}

fn read(name: &str) -> Option<Value> {
    let text = std::fs::read_to_string(file(&format!("openapi/{name}.json"))).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_of_the_http_api_have_every_endpoint_with_the_shape_of_its_answer() {
    let fleet = fast_fleet().await;
    let folder = tempfile::tempdir().unwrap();
    let (recorders, names) = recorded(&fleet, folder.path()).await;
    let summaries = summaries(&recorders);
    let updates = std::env::var_os("UPDATE_API").is_some();
    let mut faults = Vec::new();
    let mut documents = Vec::new();
    for (name, title, _) in LISTENERS {
        let fresh = document(title, &recorders[name], &summaries);
        if updates {
            let prepared = prepared(&fresh, read(name).as_ref(), &names);
            let text = format!("{}\n", layout(&prepared, 0));
            std::fs::create_dir_all(file("openapi")).unwrap();
            std::fs::write(file(&format!("openapi/{name}.json")), text).unwrap();
        }
        let document = read(name).unwrap();
        let (known, called) = (operations(&document), operations(&fresh));
        assert!(known.keys().eq(called.keys()), "{name}: run with UPDATE_API=1");
        for (key, operation) in called {
            assert_eq!(
                known[&key]["summary"], operation["summary"],
                "{key:?}: run with UPDATE_API=1"
            );
            for (known, content) in contents(known[&key]).zip(contents(operation)) {
                let place = format!("{name}: {} {}: $", key.0, key.1);
                differences(&known["schema"], &content["example"], &place, &mut faults);
            }
        }
        documents.push(document);
    }
    assert!(faults.is_empty(), "{faults:#?}\nrun with UPDATE_API=1");
    let sections: Vec<Section<'_>> = LISTENERS
        .iter()
        .zip(&documents)
        .map(|(&(name, title, about), document)| Section {
            name,
            title,
            about,
            document,
        })
        .collect();
    let written = page(&sections);
    if updates {
        std::fs::write(file("http-api.md"), &written).unwrap();
    }
    let present = std::fs::read_to_string(file("http-api.md")).unwrap();
    assert!(present == written, "run with UPDATE_API=1");
    all_pages_are_documented(&recorders);
}

/// Compares the operations with the tables that the listeners are made from.
fn all_pages_are_documented(recorders: &BTreeMap<&'static str, Recorder>) {
    let documented: BTreeMap<&str, BTreeSet<&str>> = recorders
        .iter()
        .map(|(name, recorder)| (*name, recorder.paths.keys().map(String::as_str).collect()))
        .collect();
    let index = &recorders["admin"].paths["/admin"]["get"]["responses"]["200"]["content"]["application/json"]
        ["example"];
    for row in index["pages"].as_array().unwrap() {
        let path = row["path"].as_str().unwrap().replace("{*", "{");
        let method = row["method"].as_str().unwrap().to_lowercase();
        let methods = recorders["admin"].paths.get(&path);
        assert!(
            methods.is_some_and(|methods| methods.contains_key(&method)),
            "{method} {path}"
        );
    }
    // A test of the proxy compares this table with its routes.
    let endpoints = std::fs::read_to_string(file("endpoints.md")).unwrap();
    let (_, own) = endpoints.split_once("## Pages of the router").unwrap();
    let (own, _) = own.split_once("\n## ").unwrap();
    let rows = own
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for path in rows {
        assert!(documented["clients"].contains(path), "{path}");
    }
    // The paths of the indexer are the arms of one match.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../indexer-api/src/indexer.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let (_, arms) = source.split_once("let method = match path {").unwrap();
    let (arms, _) = arms.split_once("};").unwrap();
    let served: BTreeSet<&str> = arms.split('"').filter(|text| text.starts_with('/')).collect();
    assert_eq!(served, documented["indexer"]);
}

#[test]
fn the_documents_are_valid_openapi_whose_examples_have_the_shape_of_their_schemas() {
    for (name, ..) in LISTENERS {
        let document = read(name).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
        assert!(document["components"]["responses"]["Error"]["description"].is_string());
        let mut ids = BTreeSet::new();
        for ((method, path), operation) in operations(&document) {
            assert!(
                path.starts_with('/') && METHODS.contains(&method),
                "{method} {path}"
            );
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap()),
                "{method} {path}"
            );
            check_parameters(path, &operation["parameters"]);
            let answers = operation["responses"].as_object().unwrap();
            let statuses = answers.keys().filter(|status| *status != "default");
            let statuses: Vec<u16> = statuses.map(|status| status.parse().unwrap()).collect();
            assert!(
                matches!(statuses[..], [200..=299]),
                "{method} {path}: {statuses:?}"
            );
            assert_eq!(answers["default"]["$ref"], "#/components/responses/Error");
            let mut faults = Vec::new();
            for content in contents(operation) {
                differences(&content["schema"], &content["example"], "$", &mut faults);
            }
            assert!(faults.is_empty(), "{method} {path}: {faults:?}");
        }
    }
}

/// Checks that the parameters have the fields that OpenAPI requires, and that those of the path are there.
fn check_parameters(path: &str, parameters: &Value) {
    let parameters = parameters.as_array().unwrap();
    let mut in_path = BTreeSet::new();
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap();
        assert!(parameter["schema"].is_object(), "{path}: {name}");
        match parameter["in"].as_str().unwrap() {
            "path" => {
                assert_eq!(parameter["required"], true, "{path}: {name}");
                in_path.insert(name);
            }
            place => assert!(matches!(place, "query" | "header"), "{path}: {place}"),
        }
    }
    let named: BTreeSet<&str> = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        .collect();
    assert_eq!(in_path, named, "{path}");
}
