//! `[index]`: how much the prefix index may remember.

use crate::section::Section;

/// `[index]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexConfig {
    /// Most distinct KV blocks remembered over all workers; beyond it the index forgets.
    pub max_blocks: u64,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            max_blocks: 10_000_000,
        }
    }
}

pub(crate) fn read(section: Option<Section<'_>>) -> IndexConfig {
    let default = IndexConfig::default();
    let Some(mut index) = section else {
        return default;
    };
    let config = IndexConfig {
        max_blocks: index.count("max-blocks", default.max_blocks, 1_000..=1_000_000_000),
    };
    index.finish();
    config
}
