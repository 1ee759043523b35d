//! Live tiers: arenas, devices, executing moves.
