//! Tier flag of the command line: `kind:place=size`.

use core::fmt;
use core::str::FromStr;

use super::error::TierError;
use super::kind::TierKind;
use super::spec::{Speed, TierLocation, TierSpec};

/// The key of errors about the whole of it.
const FLAG: &str = "kind:place=size";

impl FromStr for TierSpec {
    type Err = TierError;

    /// Reads `kind=size`, for some kinds with a place: `numa:1=2GiB`, `dax:/dev/dax0.0=2GiB`,
    /// `flash:/srv/tiermem.flash=8GiB`, and `emulated:numa-2018=2GiB` with the name of a curve. The tier is named after its
    /// kind.
    fn from_str(text: &str) -> Result<Self, TierError> {
        let error = |key, problem: String| TierError::new(text, key, problem);
        // A path may have equals signs and colons; sizes and kinds have none.
        let (kind, size) = text.rsplit_once('=').ok_or_else(|| {
            error(
                FLAG,
                "write it as kind=size, for example dram=512MiB or flash:/srv/tiermem.flash=8GiB".to_owned(),
            )
        })?;
        let (kind, place) = kind.split_once(':').map_or((kind, None), |(kind, place)| (kind, Some(place)));
        let kind: TierKind = kind.parse().map_err(|problem| error("kind", problem))?;
        let capacity = size.parse().map_err(|problem| error("capacity", problem))?;
        let mut spec = TierSpec { capacity: Some(capacity), ..TierSpec::unsized_of(kind) };
        match (kind, place) {
            (_, None) => {}
            (_, Some("")) => {
                return Err(error(FLAG, "there is nothing between colon and equals sign".to_owned()));
            }
            (TierKind::Numa, Some(node)) => {
                let problem = |_| error("node", format!("{node:?} is not a node number, such as 1"));
                spec.place = Some(TierLocation::Node(node.parse().map_err(problem)?));
            }
            (TierKind::Dax | TierKind::Flash, Some(path)) => {
                spec.place = Some(TierLocation::Path(path.into()))
            }
            (TierKind::Emulated, Some(curve)) => spec.speed = Speed::Curve(curve.to_owned()),
            (_, Some(_)) => {
                return Err(error(FLAG, format!("a tier of kind {kind} takes nothing behind a colon")));
            }
        }
        // What is wrong is told of what was written.
        spec.check().map(|()| spec).map_err(|wrong| TierError { tier: text.to_owned(), ..wrong })
    }
}

impl fmt::Display for TierSpec {
    /// The form of the command line, to the byte. What has no place in it (names, prices, figures) is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match (&self.place, &self.speed) {
            (Some(TierLocation::Node(node)), _) => write!(f, ":{node}")?,
            (Some(TierLocation::Path(path)), _) => write!(f, ":{}", path.display())?,
            (None, Speed::Curve(curve)) if self.kind == TierKind::Emulated => write!(f, ":{curve}")?,
            _ => {}
        }
        match self.capacity {
            Some(capacity) => write!(f, "={capacity}"),
            None => Ok(()),
        }
    }
}
