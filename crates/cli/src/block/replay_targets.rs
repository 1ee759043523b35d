//! Targets (`--to`) of `tiermem block replay`: which volume of the trace goes to which export.

use std::str::FromStr;

use anyhow::anyhow;
use tiermem_block::nbd::NbdUri;
use tiermem_block::replay::{Survey, Target};

use crate::failure::Failure;

/// Placeholder for a volume's number in an export's name.
const VOLUME: &str = "{volume}";

/// One `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// All volumes, one behind the other.
    All(NbdUri),
    /// An export for each; its name holds `{volume}`.
    Each(NbdUri),
    /// This volume.
    Volume(u32, NbdUri),
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri = |text: &str| text.parse::<NbdUri>().map_err(|error| error.to_string());
        match text.split_once('=') {
            // A URI has a colon before its first equal sign.
            Some((volume, rest)) if !volume.contains(':') => {
                let number =
                    volume.parse().map_err(|_| format!("{volume:?} is not the number of a volume"))?;
                Ok(To::Volume(number, uri(rest)?))
            }
            _ => {
                let uri = uri(text)?;
                Ok(if uri.export.contains(VOLUME) { To::Each(uri) } else { To::All(uri) })
            }
        }
    }
}

/// The exports and what lies in each, for a trace of which this is the survey.
pub fn targets(to: &[To], survey: &Survey) -> Result<Vec<Target>, Failure> {
    let volumes = || survey.volumes.keys().copied();
    match to {
        [To::All(uri)] => Ok(vec![Target { uri: uri.clone(), volumes: volumes().collect() }]),
        [To::Each(uri)] => {
            let named = |volume: u32| NbdUri {
                export: uri.export.replace(VOLUME, &volume.to_string()),
                ..uri.clone()
            };
            Ok(volumes().map(|volume| Target { uri: named(volume), volumes: vec![volume] }).collect())
        }
        several => {
            let mut targets: Vec<Target> = Vec::new();
            for to in several {
                let To::Volume(volume, uri) = to else {
                    let words = "several --to each say for which volume they are: --to 0=URI --to 1=URI";
                    return Err(Failure::usage(anyhow!(words)));
                };
                // What shares an export lies there one behind the other, or it would overlap.
                match targets.iter_mut().find(|target| target.uri == *uri) {
                    Some(target) => target.volumes.push(*volume),
                    None => targets.push(Target { uri: uri.clone(), volumes: vec![*volume] }),
                }
            }
            Ok(targets)
        }
    }
}

#[cfg(test)]
mod tests {
    use tiermem_base::{Access, Op};

    use super::*;

    fn survey() -> Survey {
        let mut survey = Survey::default();
        for tenant in [5, 2, 9] {
            survey.add(&Access { tenant, ..Access::new(0, Op::Read, 0, 512) });
        }
        survey
    }

    fn laid_out(to: &[&str]) -> Result<Vec<(String, Vec<u32>)>, Failure> {
        let to: Vec<To> = to.iter().map(|text| text.parse().unwrap()).collect();
        let targets = targets(&to, &survey())?;
        Ok(targets.into_iter().map(|target| (target.uri.to_string(), target.volumes)).collect())
    }

    #[test]
    fn volumes_go_where_they_are_told_to() {
        let uri = |text: &str| text.to_owned();
        assert_eq!(laid_out(&["nbd://h/a"]).unwrap(), [(uri("nbd://h/a"), vec![2, 5, 9])]);
        let each = laid_out(&["nbd+unix:///d-{volume}?socket=s"]).unwrap();
        let named = |number| (format!("nbd+unix:///d-{number}?socket=s"), vec![number]);
        assert_eq!(each, [named(2), named(5), named(9)]);
        let listed = laid_out(&["9=nbd://h/a", "2=nbd+unix:///b?socket=s", "5=nbd://h/a"]).unwrap();
        assert_eq!(listed, [(uri("nbd://h/a"), vec![9, 5]), (uri("nbd+unix:///b?socket=s"), vec![2])]);
        assert!(matches!(laid_out(&["nbd://h/a", "2=nbd://h/b"]), Err(Failure::Usage(_))));
    }

    #[test]
    fn what_names_no_export_is_refused() {
        for (text, wanted) in [
            ("h/a", "begins with none of nbd://"),
            ("x=nbd://h/a", "is not the number of a volume"),
            ("1=h/a", "begins with none of nbd://"),
            ("nbd+unix:///a", "lacks ?socket=PATH"),
        ] {
            let error = text.parse::<To>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
