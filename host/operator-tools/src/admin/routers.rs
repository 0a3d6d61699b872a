//! One or several routers, with the runtime that queries them.

use anyhow::Result;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::client::AdminClient;
use super::error::RemoteError;
use crate::args::RouterArgs;
use crate::{Exit, UsageError, print};

/// The routers of a command.
#[derive(Debug)]
pub struct RouterSet {
    clients: Vec<AdminClient>,
    runtime: Runtime,
    is_json: bool,
}

/// Answer of one router.
#[derive(Debug)]
pub struct RouterAnswer {
    /// Address of the router.
    pub router: String,
    /// Page, or the reason for its absence.
    pub page: Result<Value, RemoteError>,
}

impl RouterSet {
    /// Returns the routers that the arguments name.
    ///
    /// # Errors
    /// If an address is malformed or the admin key cannot be had.
    pub fn of(args: &RouterArgs) -> Result<Self> {
        let clients = args.addresses().into_iter();
        let clients = clients.map(|url| AdminClient::new(url, args));
        let clients: Result<Vec<_>, _> = clients.collect();
        Ok(Self {
            clients: clients.map_err(UsageError::new)?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            is_json: args.is_json(),
        })
    }

    /// Returns whether the output is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Returns the routers' clients.
    #[must_use]
    pub fn clients(&self) -> &[AdminClient] {
        &self.clients
    }

    /// Returns whether there are several routers.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.clients.len() > 1
    }

    /// Waits for a future.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Queries all routers at the same time, and waits for their answers.
    pub fn every<'s, F>(&'s self, query: impl Fn(&'s AdminClient) -> F) -> Vec<RouterAnswer>
    where
        F: Future<Output = Result<Value, RemoteError>>,
    {
        self.wait(self.each(query))
    }

    /// Queries all routers at the same time.
    pub async fn each<'s, F>(&'s self, query: impl Fn(&'s AdminClient) -> F) -> Vec<RouterAnswer>
    where
        F: Future<Output = Result<Value, RemoteError>>,
    {
        answers(self.clients.iter().map(|client| (client, query(client)))).await
    }

    /// Queries all routers at the same time, each with its own argument, and waits for their answers. `arguments` has
    /// one for each client.
    pub fn every_with<'s, A, F>(
        &'s self,
        arguments: impl IntoIterator<Item = A>,
        query: impl Fn(&'s AdminClient, A) -> F,
    ) -> Vec<RouterAnswer>
    where
        F: Future<Output = Result<Value, RemoteError>>,
    {
        let queries = self.clients.iter().zip(arguments);
        self.wait(answers(
            queries.map(|(client, argument)| (client, query(client, argument))),
        ))
    }

    /// Prints the answers of all routers, as text or as JSON, and the failures on standard error.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn print(&self, answers: &[RouterAnswer], text: &str) -> Result<Exit> {
        let is_failed = answers.iter().any(|answer| answer.page.is_err());
        for answer in answers {
            if let Err(error) = &answer.page {
                eprintln!("conductor: {error}");
            }
        }
        let has_page = answers.iter().any(|answer| answer.page.is_ok());
        if has_page || (self.is_json && self.is_several()) {
            print::print(&self.as_json(answers), text, self.is_json)?;
        }
        Ok(if is_failed { Exit::Failure } else { Exit::Success })
    }

    /// Returns the page of the only router, or an array with an object for each.
    #[must_use]
    pub fn as_json(&self, answers: &[RouterAnswer]) -> Value {
        if let ([RouterAnswer { page: Ok(page), .. }], false) = (answers, self.is_several()) {
            return page.clone();
        }
        let object = |answer: &RouterAnswer| match &answer.page {
            Ok(page) => json!({ "router": answer.router, "page": page }),
            Err(error) => json!({ "router": answer.router, "error": error.to_string() }),
        };
        answers.iter().map(object).collect()
    }
}

/// Waits for the answers to queries that run at the same time.
async fn answers<'s>(
    queries: impl Iterator<Item = (&'s AdminClient, impl Future<Output = Result<Value, RemoteError>>)>,
) -> Vec<RouterAnswer> {
    let answers = queries.map(|(client, page)| async {
        RouterAnswer {
            router: client.url().to_owned(),
            page: page.await,
        }
    });
    join_all(answers).await
}
