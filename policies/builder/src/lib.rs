//! Builds the policies into components and checks policies/prebuilt against their sources.
