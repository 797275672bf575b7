//! Ideal systems to measure real ones against: for tests and views, not for the packet path.

mod exact_pfq;
mod gps;
mod tree_filling;
mod water_filling;

pub use exact_pfq::{ExactPfq, ListedFlow};
pub use gps::Gps;
pub use tree_filling::{TreeNode, tree_filling};
pub use water_filling::{
    CoreBudget, CoreFlow, CoreShares, TwoFlow, max_min, max_min_of_groups, max_min_of_two,
};
