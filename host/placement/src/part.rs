//! Part of a request that one decision places.

use crate::shapes::AllowedShapes;
use crate::view::RequestView;

/// The part of a request that is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementPart {
    /// All of it, on one worker or two.
    Request,
    /// The decode leg of a prompt that is computed.
    Decode,
}

impl PlacementPart {
    /// Returns the ways in which this part may be placed.
    pub(crate) fn allowed<V: RequestView>(self, view: &V) -> AllowedShapes {
        match self {
            Self::Request => view.allowed(),
            Self::Decode => AllowedShapes {
                mixed: false,
                pair: false,
                alone: true,
            },
        }
    }
}
