//! Live configuration of the division of memory: the part that can be changed at run time.

use std::str::FromStr;

use tiermem_base::Bytes;
use tiermem_policy::partition::Objective;

use super::Plan;
use crate::partition::TenantTerms;

/// The aim of the decisions at the end of each window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// Nothing.
    #[default]
    Off,
    /// Each tenant's K, and nothing else.
    ChooseK,
    /// How memory is divided, and K.
    Divide(Objective),
}

impl FromStr for Aim {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "off" => Ok(Aim::Off),
            "k" => Ok(Aim::ChooseK),
            _ => word
                .parse()
                .map(Aim::Divide)
                .map_err(|_| format!("{word:?} is none of off, k, latency, mean, hits, fair, slo")),
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Aim::Off => f.write_str("off"),
            Aim::ChooseK => f.write_str("k"),
            Aim::Divide(objective) => objective.fmt(f),
        }
    }
}

/// The division of memory among tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The aim of the decisions.
    pub aim: Aim,
    /// After this many look-ups.
    pub window: u64,
    /// The terms of tenants where they were declared; they do not change.
    pub declared: Vec<TenantTerms>,
    /// The terms that replace them.
    pub terms: Vec<TenantTerms>,
    /// The memory that there is to divide; it does not change.
    pub memory_bytes: u64,
    /// Whether items are told apart by their tenants; without, nothing can be divided. It does not change.
    pub tells_apart: bool,
}

impl Default for Division {
    fn default() -> Self {
        let window = Plan::default().window;
        Division {
            aim: Aim::Off,
            window,
            declared: Vec::new(),
            terms: Vec::new(),
            memory_bytes: u64::MAX,
            tells_apart: true,
        }
    }
}

impl Division {
    /// Checks the configuration as a whole.
    ///
    /// # Errors
    /// When tenants are promised more than there is, or nothing could come of it.
    pub fn check(&self) -> Result<(), String> {
        if self.aim != Aim::Off && !self.tells_apart {
            return Err(
                "items are not told apart by their tenants: start with by or divide in [tenants]".to_owned()
            );
        }
        let least = self.effective().map(|one| one.terms.least_bytes).fold(0, u64::saturating_add);
        if least > self.memory_bytes {
            return Err(format!(
                "tenants are promised {} at least, more than the {} of memory",
                Bytes(least),
                Bytes(self.memory_bytes)
            ));
        }
        for (at, one) in self.terms.iter().enumerate() {
            if self.terms[..at].iter().any(|other| other.name == one.name) {
                return Err(format!("{:?} is there twice", one.name));
            }
        }
        Ok(())
    }

    /// The effective terms of each tenant that has any.
    pub fn effective(&self) -> impl Iterator<Item = &TenantTerms> {
        let is_replaced = |one: &&TenantTerms| self.terms.iter().any(|other| other.name == one.name);
        self.declared.iter().filter(move |one| !is_replaced(one)).chain(&self.terms)
    }

    /// The changed terms as one text, and back ([`Self::read_terms`]).
    pub fn terms_text(&self) -> String {
        self.terms.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Reads `web:min=64MiB,hits=0.9 crawler:max=1GiB`; names have no white space.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn read_terms(&mut self, text: &str) -> Result<(), String> {
        self.terms = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A plan changed to what this says.
    pub fn apply(&self, plan: &Plan) -> Option<Plan> {
        let (divides, objective) = match self.aim {
            Aim::Off => return None,
            Aim::ChooseK => (false, plan.objective),
            Aim::Divide(objective) => (true, objective),
        };
        Some(Plan { divides, objective, window: self.window, ..plan.clone() })
    }
}
