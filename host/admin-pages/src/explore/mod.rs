//! Admin pages that explore what the router has: the prefix index, prompts in it, recorded decisions, and uploaded
//! policies. They are on the operators' listener only.

mod index;
mod lookup;
mod replay;
mod simulations;
mod state;
mod upload;

use axum::Router;

pub(crate) use self::simulations::SimulationPages;
pub(crate) use self::state::{ExplorePages, ExploreTurns};
pub(crate) use self::upload::UploadPage;

impl ExplorePages {
    pub(crate) fn pages(self) -> Router {
        index::pages()
            .merge(lookup::pages())
            .merge(replay::pages())
            .with_state(self)
    }
}
