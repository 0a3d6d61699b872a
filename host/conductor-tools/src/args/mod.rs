//! Arguments of the commands, as the command line's parser reads them.

mod block_hashes;
mod gate;
mod policy;
mod remote;
mod simulate;

pub use self::block_hashes::{BlockHashesArgs, HashScheme};
pub use self::gate::{GateArgs, IdleVerdict};
pub use self::policy::{
    BuildArgs, FeaturesArgs, InspectArgs, Language, ListArgs, NewArgs, PolicyArgs, PolicyCheckArgs,
    PolicyCommand, ReplayArgs, SettingsArgs, SubjectArgs,
};
pub use self::remote::{DeployArgs, ExplainArgs, TrialArgs};
pub(crate) use self::simulate::{
    ArrivalKind, BalanceKind, CACHE_TOKENS, Costs, KnowledgeKind, OrderKind, Outage, ProfileName, RouterEnd,
    ShareKind,
};
pub use self::simulate::{SimulateArgs, SimulatedClusterArgs, SimulatedRouterArgs};
